package camerabroker

import (
	"context"
	"errors"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/deploy/samples/camera-broker/internal/decode"
	"akri.sh/deploy/samples/camera-broker/internal/mp4"
	"akri.sh/deploy/samples/camera-broker/internal/page"
	"akri.sh/deploy/samples/camera-broker/internal/video"
	"akri.sh/deploy/samples/camera-broker/internal/viewer"
	"akri.sh/proto/camera"
)

const (
	// imageTimeout limits the time that a client waits for an image.
	imageTimeout = 15 * time.Second
	// clientTimeout ends the stream of a client that does not read it.
	clientTimeout = 10 * time.Second
)

// frames is the API of upstream's brokers.
type frames struct {
	camera.UnimplementedCameraServer

	broker *Broker
}

// GetFrame returns the latest frame.
func (f frames) GetFrame(ctx context.Context, _ *camera.NotifyRequest) (*camera.NotifyResponse, error) {
	image, err := f.broker.image(ctx)
	switch {
	case err == nil:
		return &camera.NotifyResponse{Frame: image, Camera: f.broker.settings.Name}, nil
	case errors.Is(err, decode.ErrUnsupported):
		return nil, status.Error(codes.Unimplemented, err.Error())
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Error(codes.Unavailable, err.Error())
}

func (b *Broker) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", page.Handler(func(context.Context) []page.Camera {
		return []page.Camera{{Name: b.settings.Name, Stream: "stream"}}
	}))
	mux.HandleFunc("GET /stream", b.stream)
	mux.HandleFunc("GET /snapshot.jpg", b.snapshot)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(viewer.NameHeader, b.settings.Name)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

func (b *Broker) snapshot(w http.ResponseWriter, r *http.Request) {
	image, err := b.image(r.Context())
	if err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, decode.ErrUnsupported) {
			code = http.StatusNotImplemented
		}
		http.Error(w, err.Error(), code)
		return
	}
	w.Header().Set("Content-Type", "image/jpeg")
	w.Header().Set("Content-Length", strconv.Itoa(len(image)))
	_, _ = w.Write(image) // the client may have closed the connection
}

// stream sends video until the client closes the connection, the session with the camera fails or
// the format of the video changes: as fragmented MP4, or as JPEG images, each as a part of the
// response.
func (b *Broker) stream(w http.ResponseWriter, r *http.Request) {
	reader := b.hub.Read()
	defer reader.Close()
	waiting, cancel := context.WithTimeout(r.Context(), imageTimeout)
	defer cancel()
	err := b.hub.Failure()
	var frame *video.Frame
	if err == nil {
		frame, err = reader.Next(waiting)
	}
	if err != nil {
		if health := b.hub.Health(); health != nil {
			err = health
		}
		http.Error(w, "camera "+b.settings.Name+": "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	write, contentType, err := newWriter(deadlineWriter{w, http.NewResponseController(w)}, frame)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", contentType)
	for err == nil {
		if err = write(frame); err == nil {
			frame, err = reader.Next(r.Context())
		}
	}
}

// newWriter returns a function that writes frames of the kind of the first one.
func newWriter(w deadlineWriter, first *video.Frame) (write func(*video.Frame) error, contentType string, err error) {
	if first.Codec == video.JPEG {
		parts := multipart.NewWriter(w)
		return func(frame *video.Frame) error { return writePart(parts, w, frame) }, "multipart/x-mixed-replace; boundary=" + parts.Boundary(), nil
	}
	if contentType, err = mp4.ContentType(first); err != nil {
		return nil, "", err
	}
	file, err := mp4.NewWriter(w, first)
	if err != nil {
		return nil, "", err
	}
	return func(frame *video.Frame) error {
		if err := file.Write(frame); err != nil {
			return err
		}
		return w.flush()
	}, contentType, nil
}

// writePart leaves out damaged images.
func writePart(parts *multipart.Writer, w deadlineWriter, frame *video.Frame) error {
	if frame.Codec != video.JPEG {
		return mp4.ErrFormatChanged
	}
	image, err := frame.Image()
	if err != nil {
		return nil
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
	return w.flush()
}

// deadlineWriter fails when a client does not read for a while.
type deadlineWriter struct {
	writer  http.ResponseWriter
	control *http.ResponseController
}

func (d deadlineWriter) Write(data []byte) (int, error) {
	if err := d.control.SetWriteDeadline(time.Now().Add(clientTimeout)); err != nil {
		return 0, err
	}
	return d.writer.Write(data)
}

func (d deadlineWriter) flush() error { return d.control.Flush() }
