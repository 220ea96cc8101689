package camerabroker

import (
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"time"
)

// clientTimeout ends the stream of a client that does not read it.
const clientTimeout = 10 * time.Second

func (b *Broker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", b.stream)
	mux.HandleFunc("GET /snapshot.jpg", b.snapshot)
	mux.HandleFunc("GET /healthz", b.healthz)
	return mux
}

// healthz reports whether the camera has sent a frame. A camera that stops to send frames ends the
// process.
func (b *Broker) healthz(w http.ResponseWriter, _ *http.Request) {
	if frame, _ := b.latest.Get(); frame == nil {
		http.Error(w, "no frame yet", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (b *Broker) snapshot(w http.ResponseWriter, _ *http.Request) {
	frame, _ := b.latest.Get()
	if frame == nil {
		http.Error(w, "no frame yet", http.StatusServiceUnavailable)
		return
	}
	image, err := frame()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "image/jpeg")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(image)))
	_, _ = w.Write(image) // the client may have closed the connection
}

// stream sends each frame as a part of the response, which browsers show as a video. Damaged frames
// are left out.
func (b *Broker) stream(w http.ResponseWriter, r *http.Request) {
	control, parts := http.NewResponseController(w), multipart.NewWriter(w)
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary="+parts.Boundary())
	w.Header().Set("Cache-Control", "no-store")
	for {
		frame, changed := b.latest.Get()
		if frame != nil {
			if image, err := frame(); err == nil && sendPart(control, parts, image) != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

func sendPart(control *http.ResponseController, parts *multipart.Writer, image []byte) error {
	if err := control.SetWriteDeadline(time.Now().Add(clientTimeout)); err != nil {
		return err
	}
	part, err := parts.CreatePart(textproto.MIMEHeader{
		"Content-Type": {"image/jpeg"}, "Content-Length": {strconv.Itoa(len(image))},
	})
	if err != nil {
		return err
	}
	if _, err := part.Write(image); err != nil {
		return err
	}
	return control.Flush()
}
