// Package decode makes JPEG images from H.264 video. The decoder is a child process without access
// to files, network and environment, because it reads what a camera sends.
package decode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

const (
	// linger is the time for which the child continues without requests. It decodes all frames
	// meanwhile, so that the next request has its image at once.
	linger = 5 * time.Second
	// replyTimeout ends a child that does not read or reply.
	replyTimeout = 5 * time.Second
	// maxPixels limits the size of images: 4,096 x 2,304.
	maxPixels = 4096 * 2304
)

// ErrUnsupported is the error of videos that are not decoded.
var ErrUnsupported = errors.New("the video is not decoded")

// Decoder decodes the frames of a Hub while images are requested.
type Decoder struct {
	hub      *video.Hub
	log      *slog.Logger
	command  []string
	requests chan chan<- result
}

type result struct {
	image []byte
	err   error
}

// New returns a Decoder. command is the child process, which calls Serve with its standard input
// and output.
func New(hub *video.Hub, log *slog.Logger, command ...string) *Decoder {
	return &Decoder{hub: hub, log: log, command: command, requests: make(chan chan<- result)}
}

// Image returns the latest frame as a JPEG image. It waits until ctx ends.
func (d *Decoder) Image(ctx context.Context) ([]byte, error) {
	reply := make(chan result, 1)
	select {
	case d.requests <- reply:
	case <-ctx.Done():
		return nil, d.late(ctx)
	}

	select {
	case r := <-reply:
		return r.image, r.err
	case <-ctx.Done():
		return nil, d.late(ctx)
	}
}

// late returns why there was no image in time.
func (d *Decoder) late(ctx context.Context) error {
	return errors.Join(d.hub.Health(), ctx.Err())
}

// Run serves requests until ctx ends.
func (d *Decoder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-d.requests:
			d.serve(ctx, request)
		}
	}
}

// serve reads frames until there were no requests for a while. The state of a decoder begins again
// with each session of the camera.
func (d *Decoder) serve(ctx context.Context, request chan<- result) {
	frames := d.hub.Read()
	defer frames.Close()
	w := &worker{decoder: d, waiting: []chan<- result{request}}
	defer w.end()
	idle := time.NewTimer(linger)
	defer idle.Stop()

	for {
		for !frames.Empty() {
			frame, err := frames.Next(ctx)
			if err != nil { // of the session with the camera
				w.restart()
				continue
			}
			w.decode(ctx, frame)
		}
		w.answer()

		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			return
		case request := <-d.requests:
			w.waiting = append(w.waiting, request)
			idle.Reset(linger)
		case <-frames.Added():
		}
	}
}

// worker decodes the frames of one session with the camera.
type worker struct {
	decoder *Decoder
	waiting []chan<- result
	child   *child       // nil without H.264, and after a failure until a key frame
	frame   *video.Frame // the latest one
	image   []byte       // of the frame, or nil if none was requested
	ranges  string       // of the child's video
	err     error        // why frames are not decoded until a key frame
}

// decode passes a frame to the child. Images need none.
func (w *worker) decode(ctx context.Context, frame *video.Frame) {
	w.frame, w.image = frame, nil
	if frame.Codec == video.JPEG {
		return
	}
	if frame.Key {
		if w.ranges, w.err = check(frame); w.err != nil {
			return
		}
	}
	if w.err != nil {
		return // until a key frame
	}

	if w.child == nil {
		if w.child, w.err = start(ctx, w.decoder.command); w.err != nil {
			return
		}
	}

	if content, err := h264.AnnexB(frame.Units).Marshal(); err != nil {
		w.fail(err)
	} else if err := w.child.send(frameMessage, content); err != nil {
		w.fail(err)
	}
}

func (w *worker) fail(err error) {
	w.err = fmt.Errorf("decoder: %w", err)
	w.decoder.log.Error("decoding failed; the decoder starts again with the next key frame", "error", err)
	w.child.end()
	w.child = nil
}

// answer replies to all requests if there is a frame or the camera has failed.
func (w *worker) answer() {
	if len(w.waiting) == 0 {
		return
	}

	var r result
	switch failure := w.decoder.hub.Failure(); {
	case failure != nil:
		r.err = failure
	case w.frame == nil:
		return
	case w.frame.Codec == video.JPEG:
		r.image, r.err = w.frame.Image()
	case w.err != nil:
		r.err = w.err
	default:
		if w.image == nil {
			w.image, r.err = w.child.image(w.ranges)
		}
		if r.err != nil {
			w.fail(r.err)
			r.err = w.err
		} else if w.image == nil {
			return // the next frames complete the image
		}
		r.image = w.image
	}

	for _, request := range w.waiting {
		request <- r
	}
	w.waiting = nil
}

func (w *worker) restart() {
	w.end()
	w.frame, w.image, w.err = nil, nil, nil
}

func (w *worker) end() {
	if w.child != nil {
		w.child.end()
		w.child = nil
	}
}

// check returns the range of the video, or why it is not decoded.
func check(key *video.Frame) (ranges string, err error) {
	if key.Codec != video.H264 {
		return "", fmt.Errorf("%w: it is %s; set the camera or PROFILE to H.264 or JPEG", ErrUnsupported, key.Codec)
	}
	var sps h264.SPS
	if err := sps.Unmarshal(key.Units[0]); err != nil {
		return "", fmt.Errorf("%w: its parameter set: %w", ErrUnsupported, err)
	}

	width, height := sps.Width(), sps.Height()
	switch {
	case width <= 0 || height <= 0 || width > maxPixels/height: // their product can overflow
		return "", fmt.Errorf("%w: it has %d x %d pixels, at most %d are supported", ErrUnsupported, width, height, maxPixels)
	case !sps.FrameMbsOnlyFlag:
		return "", fmt.Errorf("%w: it is interlaced; set the camera to progressive video", ErrUnsupported)
	case sps.ChromaFormatIdc > 1 || sps.BitDepthLumaMinus8 > 0 || sps.BitDepthChromaMinus8 > 0:
		return "", fmt.Errorf("%w: it is not 4:2:0 with 8 bits; set the camera to the profile Main or High", ErrUnsupported)
	case sps.VUI != nil && sps.VUI.VideoFullRangeFlag:
		return fullRange, nil
	}
	return limitedRange, nil
}

// child is the process of a decoder.
type child struct {
	command *exec.Cmd
	in      *os.File
	out     *os.File
}

func start(ctx context.Context, command []string) (*child, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, childIn.Close(), in.Close())
	}

	c := &child{command: exec.CommandContext(ctx, command[0], command[1:]...), in: in, out: out}
	// The environment has the password of the camera, so the child gets none.
	c.command.Env = []string{}
	c.command.Stdin, c.command.Stdout, c.command.Stderr = childIn, childOut, os.Stderr

	// The child has its ends of the pipes.
	err = c.command.Start()
	if closeErr := errors.Join(childIn.Close(), childOut.Close()); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the decoder: %w", err), in.Close(), out.Close())
	}
	return c, nil
}

func (c *child) send(kind byte, content []byte) error {
	if err := c.in.SetWriteDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	return send(c.in, kind, content)
}

// image returns nil if no frame is complete.
func (c *child) image(ranges string) ([]byte, error) {
	if err := c.send(imageMessage, []byte(ranges)); err != nil {
		return nil, err
	}
	if err := c.out.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}

	kind, content, err := receive(c.out)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the process has ended")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the process has not replied for %s", replyTimeout)
	case err != nil:
		return nil, err
	case kind == failureReply:
		return nil, fmt.Errorf("%.200q", content)
	case len(content) == 0:
		return nil, nil
	}
	return content, nil
}

// end stops the process.
func (c *child) end() {
	_, _ = c.in.Close(), c.out.Close()
	_ = c.command.Process.Kill()
	_ = c.command.Wait() // it was killed
}
