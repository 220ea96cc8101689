// Command hello is a static binary for tests.
package main

func main() { println("hello") }
