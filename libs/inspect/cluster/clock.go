package cluster

import (
	"net/http"
	"sync/atomic"
	"time"
)

// serverClock is the clock of the API server, from the Date of its last response. Times in objects
// are compared with it, so that the clock of the user's machine can be wrong.
type serverClock struct {
	// ahead is by how much it is ahead of the clock of this machine. Date has seconds.
	ahead atomic.Int64
}

// wrap returns a transport that reads the Date of responses.
func (c *serverClock) wrap(transport http.RoundTripper) http.RoundTripper {
	return dateReader{transport, c}
}

// now is the time by the clock of the API server, or by that of this machine before the first
// response.
func (c *serverClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type dateReader struct {
	transport http.RoundTripper
	clock     *serverClock
}

func (r dateReader) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.transport.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		r.clock.ahead.Store(int64(time.Until(date)))
	}
	return response, nil
}
