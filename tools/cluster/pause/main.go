// Command pause does nothing until it is told to end. It is the sandbox process of each pod, and the process that keeps a
// node's mount namespace alive.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
