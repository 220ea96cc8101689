// Package console serves pages that show the devices of Akri and explain why one is missing. The
// pages are rendered on the server, follow the cluster with server-sent events, and load nothing
// from elsewhere.
package console

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/timeline"
	"akri.sh/libs/trial"
	"akri.sh/libs/version"
)

// maxStreams is the number of pages that can be open at once. Further ones are shown and do not
// follow the cluster.
const maxStreams = 100

// policy allows scripts, styles and requests of the console itself, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Source has the objects to show.
type Source interface {
	// Snapshot returns the objects. The console does not change them.
	Snapshot() *explain.Snapshot
	// Events returns the Events about Configurations and Instances, and the Warnings about Pods and
	// Nodes, the newest first.
	Events() []Event
	// Timeline returns what has happened to a device since the process watches, also if the device
	// does not exist any more.
	Timeline(namespace, name string) timeline.Timeline
	// Health returns the state of the connection to the API server.
	Health() cache.Health
	// Changed returns a channel that is closed at the next change of the above.
	Changed() <-chan struct{}
}

// Viewer sends requests.
type Viewer struct {
	// Source has what the viewer may see, as it was when the request was admitted.
	Source
	// Name of the user, or empty.
	Name string
	// CanLogOut adds a button that sends POST /logout.
	CanLogOut bool
	// Closest asks the handlers for the devices that come closest to the details of a Configuration
	// that no device matches. It is nil if the console may not: then the page names the command.
	Closest func(ctx context.Context, s *explain.Snapshot, c *akriv0.Configuration) []trial.Group
}

// Admit returns the sender of a request, or a handler that answers the request instead, such as a
// login page. It is also called while a page is open, which is loaded again after a refusal.
type Admit func(r *http.Request) (Viewer, http.Handler)

type console struct {
	admit   Admit
	streams chan struct{}
}

// Handler returns the handler of all pages. It serves everyone: the caller restricts who may send
// requests.
func Handler(source Source) http.Handler {
	return Restricted(func(*http.Request) (Viewer, http.Handler) { return Viewer{Source: source}, nil })
}

// Restricted returns the handler of all pages for senders that are admitted. Everyone gets the
// style sheet and the scripts.
func Restricted(admit Admit) http.Handler {
	c := &console{admit: admit, streams: make(chan struct{}, maxStreams)}
	mux := http.NewServeMux()
	static, err := fs.Sub(staticFiles, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(static)))
	for pattern, page := range pages {
		mux.Handle("GET "+pattern, c.page(page))
	}
	return Headers(mux)
}

// Headers adds headers with which browsers protect the pages.
func Headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// page is one page.
type page struct {
	// template is the name of the file.
	template string
	// section of the navigation.
	section string
	// data returns the title and what the template shows. found is false if the object does not
	// exist.
	data func(v view) (title string, data any, found bool)
}

// view is what a page shows: the objects and the request.
type view struct {
	*explain.Snapshot
	viewer Viewer
	r      *http.Request
}

// document is the value of the layout.
type document struct {
	Title, Section, Version string
	Sections                []section
	Health                  cache.Health
	Unreadable              []string
	OneNamespace            bool
	User                    string
	CanLogOut               bool
	// Now is the time of the server, by which the browser shows ages.
	Now  time.Time
	Data any
}

type section struct{ Path, Name string }

var sections = []section{
	{"/", "Overview"}, {"/problems", "Problems"}, {"/configurations", "Configurations"}, {"/devices", "Devices"}, {"/nodes", "Nodes"},
	{"/pods", "Pods"}, {"/handlers", "Handlers"}, {"/services", "Services"}, {"/events", "Events"},
}

// parse returns the templates of the page, which show times with the function.
func (p page) parse(times func(time.Time) template.HTML) *template.Template {
	root := template.New("layout.html").Funcs(functions).Funcs(template.FuncMap{"time": times})
	return template.Must(root.ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/"+p.template))
}

func (c *console) page(p page) http.Handler {
	// The ages in a stream would change it each minute: the browser writes them.
	whole, live := p.parse(relativeTime), p.parse(absoluteTime)
	render := func(r *http.Request, viewer Viewer, parsed *template.Template, name string) ([]byte, bool, error) {
		snapshot := viewer.Snapshot()
		title, data, found := p.data(view{snapshot, viewer, r})
		var out bytes.Buffer
		err := parsed.ExecuteTemplate(&out, name, document{
			Title: title, Section: p.section, Version: version.Version, Sections: sections, Health: viewer.Health(),
			Unreadable: snapshot.Unreadable, OneNamespace: snapshot.OneNamespace,
			User: viewer.Name, CanLogOut: viewer.CanLogOut, Now: time.Now(), Data: data,
		})
		if err != nil {
			err = fmt.Errorf("render %s: %w", p.template, err)
		}
		return out.Bytes(), found, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			c.stream(w, r, func(viewer Viewer) ([]byte, error) {
				text, _, err := render(r, viewer, live, "live")
				return text, err
			})
			return
		}
		viewer, refusal := c.admit(r)
		if refusal != nil {
			refusal.ServeHTTP(w, r)
			return
		}
		text, found, err := render(r, viewer, whole, "layout.html")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(text)
	})
}
