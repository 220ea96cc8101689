// Command relay forwards TCP connections from the listener at file descriptor 3 to the address in
// its argument.
//
// The parent opened the listener in its own network namespace, and the relay dials in another one.
// The two namespaces need no link, address or route in common.
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
		return fmt.Errorf("arguments %q: must be one address to forward to", args)
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

// relay copies between the client and a new connection to target until both directions have ended.
// Each direction ends separately: an exec or attach stream can have output after its input ended.
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
