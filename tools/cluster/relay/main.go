// Command relay copies TCP connections from the listener that it inherits as file descriptor 3 to the address in its argument.
//
// The listener was opened in the network namespace of the parent, the dials happen in that of the relay: the two namespaces
// need no link, address or route in common.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the address to relay to, got %q", args)
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("use the inherited listener: %w", err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go relay(conn.(*net.TCPConn), args[0])
	}
}

// relay joins one connection with a new one to target, and passes the end of each direction on as it comes: an exec or attach
// stream may still carry output after its input ended.
func relay(client *net.TCPConn, target string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return
	}
	server := upstream.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.CloseWrite()
	<-done
}
