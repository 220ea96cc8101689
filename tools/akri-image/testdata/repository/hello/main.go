// Command hello is a static program for tests.
package main

func main() { println("hello") }
