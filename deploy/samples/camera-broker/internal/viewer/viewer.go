// Package viewer shows the cameras of many brokers in one page.
package viewer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"akri.sh/deploy/samples/camera-broker/internal/page"
)

const (
	// askTimeout limits the time that a broker has to name its camera, and resolveTimeout that of
	// the DNS.
	askTimeout     = 3 * time.Second
	resolveTimeout = 5 * time.Second
	// fresh is the time for which the list of brokers is used.
	fresh = 5 * time.Second
)

// NameHeader is the header of a broker with the name of its camera.
const NameHeader = "Akri-Camera"

// Options of a Viewer.
type Options struct {
	// Host is the name of a headless Service. It resolves to the addresses of the brokers that are
	// ready.
	Host string
	Port string
	// AuthoritiesFile has the certificates that those of the brokers are verified with, for the
	// name Host. Without it, brokers are called in plain text.
	AuthoritiesFile string
	// TokenFile has the token of the brokers.
	TokenFile string
	Log       *slog.Logger
	// Resolve is that of a net.Resolver.
	Resolve func(ctx context.Context, host string) (addresses []string, err error)
}

// Viewer finds brokers and passes their video on.
type Viewer struct {
	options   Options
	scheme    string
	transport *http.Transport

	mu      sync.Mutex
	cameras map[string][]string // addresses of brokers by the name of their camera
	asked   time.Time
}

// New returns a Viewer.
func New(options Options) (*Viewer, error) {
	v := &Viewer{options: options, scheme: "http", transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}}
	if options.AuthoritiesFile != "" {
		content, err := os.ReadFile(options.AuthoritiesFile)
		if err != nil {
			return nil, fmt.Errorf("CAMERAS_CA_FILE: %w", err)
		}

		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("CAMERAS_CA_FILE=%s: has no certificate in PEM", options.AuthoritiesFile)
		}

		v.scheme = "https"
		v.transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: options.Host}
	}
	return v, nil
}

// Handler serves the page, and the video of each camera.
func (v *Viewer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", page.Handler(v.list))
	mux.HandleFunc("GET /cameras/{name}/stream", v.stream)
	return mux
}

func (v *Viewer) list(ctx context.Context) []page.Camera {
	var all []page.Camera
	for name := range v.find(ctx) {
		all = append(all, page.Camera{Name: name, Stream: "cameras/" + url.PathEscape(name) + "/stream"})
	}
	slices.SortFunc(all, func(a, b page.Camera) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// find returns the brokers that answer, by the name of their camera.
func (v *Viewer) find(ctx context.Context) map[string][]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.asked) < fresh {
		return v.cameras
	}

	// A client that leaves does not end the search, whose result is for all clients.
	ctx = context.WithoutCancel(ctx)
	addresses, err := v.resolve(ctx)
	if err != nil {
		v.options.Log.Warn("no broker was found", "host", v.options.Host, "error", err)
	}

	names := make([]string, len(addresses))
	var asking sync.WaitGroup
	for i, address := range addresses {
		asking.Go(func() {
			name, err := v.ask(ctx, address)
			if err != nil {
				v.options.Log.Warn("a broker does not name its camera", "address", address, "error", err)
			}
			names[i] = name
		})
	}
	asking.Wait()

	found := map[string][]string{}
	for i, name := range names {
		if name != "" {
			found[name] = append(found[name], addresses[i])
		}
	}
	for _, brokers := range found {
		slices.Sort(brokers)
	}

	v.cameras, v.asked = found, time.Now()
	return found
}

func (v *Viewer) resolve(ctx context.Context) (addresses []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	return v.options.Resolve(ctx, v.options.Host)
}

func (v *Viewer) ask(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, v.base(address).String(), nil)
	if err != nil {
		return "", err
	}
	if err := v.authorize(request); err != nil {
		return "", err
	}

	response, err := v.transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %s", response.Status)
	}
	return cmp.Or(response.Header.Get(NameHeader), address), nil
}

func (v *Viewer) base(address string) *url.URL {
	return &url.URL{Scheme: v.scheme, Host: net.JoinHostPort(address, v.options.Port), Path: "/"}
}

// authorize replaces the credentials of the viewer's client by the token of the brokers.
func (v *Viewer) authorize(request *http.Request) error {
	request.Header.Del("Authorization")
	if v.options.TokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(v.options.TokenFile)
	if err != nil {
		return fmt.Errorf("CAMERAS_TOKEN_FILE: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// stream passes on the video of the first broker of the camera.
func (v *Viewer) stream(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	brokers := v.find(r.Context())[name]
	if len(brokers) == 0 {
		http.Error(w, "no broker of this camera is ready", http.StatusServiceUnavailable)
		return
	}

	proxy := &httputil.ReverseProxy{
		Transport: v.transport, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(v.options.Log.Handler(), slog.LevelWarn),
		Rewrite: func(request *httputil.ProxyRequest) {
			request.Out.URL = v.base(brokers[0])
			request.Out.URL.Path = "/stream"
			request.Out.Host = v.options.Host
			if err := v.authorize(request.Out); err != nil {
				v.options.Log.Error("reading the token failed", "error", err)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			v.options.Log.Warn("the video of a camera has ended", "camera", name, "error", err)
			v.forget()
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// forget makes the next request look for brokers.
func (v *Viewer) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{}
}
