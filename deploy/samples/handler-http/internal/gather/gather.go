// Package gather serves the responses of other HTTP servers. The broker of the tutorial serves that
// of its device, and the application those of the brokers.
package gather

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// timeout is that of all requests for one response.
	timeout = 5 * time.Second
	// maxResponse is the maximum size of a response, in bytes.
	maxResponse = 1 << 20
)

// Serve serves Handler at an address.
func Serve(address string, urls map[string]string) error {
	server := &http.Server{Addr: address, Handler: Handler(urls), ReadHeaderTimeout: timeout}
	return server.ListenAndServe()
}

// Handler responds to GET / with the JSON of each URL, by its name. If one does not respond with
// JSON, the status is 502 and the text names it.
func Handler(urls map[string]string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		responses := map[string]json.RawMessage{}
		for name, url := range urls {
			response, err := get(ctx, url)
			if err != nil {
				http.Error(w, fmt.Sprintf("%s: %v", name, err), http.StatusBadGateway)
				return
			}
			responses[name] = response
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(responses)
	})
	return mux
}

func get(ctx context.Context, url string) (json.RawMessage, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, err
	}
	if !json.Valid(content) {
		return nil, fmt.Errorf("get %s: the response is not JSON of at most %d bytes", url, maxResponse)
	}
	return content, nil
}
