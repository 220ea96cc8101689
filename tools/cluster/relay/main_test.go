package main_test

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHalfClose ends the sending direction and still receives, as kubectl exec with piped input
// does.
func TestHalfClose(t *testing.T) {
	echo := listen(t)
	go func() {
		conn, err := echo.AcceptTCP()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn)
		_, _ = conn.Write(append([]byte("echo "), all...))
	}()
	conn, err := net.DialTCP("tcp", nil, startRelay(t, echo.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "echo hello" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// TestUnreachableTarget checks that the relay closes the connection and keeps running.
func TestUnreachableTarget(t *testing.T) {
	closed := listen(t)
	target := closed.Addr().String()
	_ = closed.Close()
	address := startRelay(t, target)
	for range 2 {
		conn, err := net.DialTCP("tcp", nil, address)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		_ = conn.Close()
	}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// startRelay passes a listener to the relay, as a cluster does.
func startRelay(t *testing.T, target string) *net.TCPAddr {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "relay")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	listener := listen(t)
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(binary, target)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return listener.Addr().(*net.TCPAddr)
}
