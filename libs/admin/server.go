package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// idleTimeout leaves Prometheus its connection: nobody scrapes less often than every two minutes.
	idleTimeout = 5 * time.Minute
	// maxIdle is how many connections may have it; the others end with the answer.
	maxIdle        = 16
	requestTimeout = 2 * time.Second
	answerTimeout  = 30 * time.Second
	requestBytes   = 64 << 10
	// acceptPause is for when the process has too many files open.
	acceptPause = 100 * time.Millisecond
)

// server answers HTTP/1.1 without TLS. net/http reads the requests and writes the answers. Its Server is not used because it
// serves TLS too: all of crypto/tls would be a tenth of each program, and 0.7 MiB of what a handler has in memory.
type server struct {
	handler http.Handler
	idle    chan struct{} // has room for maxIdle
}

func newServer(handler http.Handler) *server {
	return &server{handler: handler, idle: make(chan struct{}, maxIdle)}
}

// serve closes the listener when ctx ends, and returns when all connections have ended.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			connections.Go(func() { s.converse(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// converse answers the requests of a connection one after the other, until either side has enough.
func (s *server) converse(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	limited := &io.LimitedReader{R: conn}
	reader := bufio.NewReader(limited)
	for {
		limited.N = requestBytes
		_ = conn.SetDeadline(time.Now().Add(requestTimeout))
		request, err := http.ReadRequest(reader)
		_ = conn.SetDeadline(time.Now().Add(answerTimeout))
		if err != nil {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: %s\r\nConnection: close\r\n\r\n%v\n", plain, err)
			return
		}
		answer := s.answer(request.WithContext(ctx))
		if answer.Write(conn) != nil || answer.Close || !s.another(conn, reader) {
			return
		}
	}
}

// another waits for the next question, if there is room for who waits.
func (s *server) another(conn net.Conn, reader *bufio.Reader) bool {
	select {
	case s.idle <- struct{}{}:
		defer func() { <-s.idle }()
	default:
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(idleTimeout))
	_, err := reader.Peek(1)
	return err == nil
}

// answer has what the handler says. None of the questions has a body; one that is too long to be skipped ends the connection.
func (s *server) answer(request *http.Request) *http.Response {
	said := &response{status: http.StatusOK, header: http.Header{}}
	s.ask(said, request)
	said.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return &http.Response{
		StatusCode:    said.status,
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        said.header,
		Body:          io.NopCloser(&said.body),
		ContentLength: int64(said.body.Len()),
		Close:         request.Close || request.Body.Close() != nil,
		Request:       request,
	}
}

// ask does not let a check that panics end the process: it is not well, and that is what the answer says.
func (s *server) ask(said *response, request *http.Request) {
	defer func() {
		if reason := recover(); reason != nil {
			said.body.Reset()
			http.Error(said, fmt.Sprintf("panic: %v", reason), http.StatusInternalServerError)
		}
	}()
	s.handler.ServeHTTP(said, request)
}

// response keeps what a handler says until its length is known.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (r *response) Header() http.Header            { return r.header }
func (r *response) WriteHeader(status int)         { r.status = status }
func (r *response) Write(data []byte) (int, error) { return r.body.Write(data) }
