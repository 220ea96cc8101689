// Command pause waits for SIGINT or SIGTERM. It is the sandbox process of each pod and the process
// that holds a node's mount namespace.
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
