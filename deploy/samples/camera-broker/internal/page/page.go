// Package page is the page that shows the video of cameras.
package page

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
)

// Camera is a camera in the page.
type Camera struct {
	Name   string
	Stream string // address of the video, relative to the page
}

//go:embed index.html player.js style.css
var files embed.FS

var index = template.Must(template.ParseFS(files, "index.html"))

// policy allows only what the page needs: no inline scripts, and no other origins.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; media-src 'self' blob:; connect-src 'self'; frame-ancestors 'none'"

// Handler serves the page with the cameras.
func Handler(cameras func(context.Context) []Camera) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var content bytes.Buffer
		if err := index.Execute(&content, cameras(r.Context())); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policy)
		_, _ = w.Write(content.Bytes())
	})
	for _, name := range []string{"player.js", "style.css"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, files, name) })
	}
	return mux
}
