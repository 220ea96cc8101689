package decode

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
)

// Kinds of messages to the child. A message is its kind, its length in 4 bytes and its content.
const (
	frameMessage = 'f' // a frame in the format of Annex B
	imageMessage = 'i' // asks for the last image; the content is fullRange or limitedRange
)

// Ranges of luma and chroma in a video: 0 to 255, or 16 to 235 and 16 to 240.
const (
	fullRange    = "full"
	limitedRange = "limited"
)

// Kinds of replies to imageMessage.
const (
	imageReply   = 'i' // a JPEG image
	failureReply = 'e' // the text of an error
)

// maxMessage limits messages.
const maxMessage = 16 << 20

const quality = 85

// Serve is the child: it decodes the frames that it reads, and replies with images. It gives up the
// files and the network of the process before it reads.
func Serve(in io.Reader, out io.Writer) error {
	decoder, err := open() // reads /proc/cpuinfo on 32-bit ARM, to use NEON
	if err != nil {
		return err
	}
	if err := sandbox(); err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	var shown *image.YCbCr
	var failure error
	for reader := bufio.NewReader(in); ; {
		kind, content, err := receive(reader)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind {
		case frameMessage:
			picture, err := decoder.decode(content)
			if picture != nil {
				shown = picture
			}
			failure = err
			if err != nil {
				shown = nil // its memory may have been overwritten
			}
		case imageMessage:
			if err := reply(out, shown, string(content) == fullRange, failure); err != nil {
				return err
			}
		default:
			return fmt.Errorf("unknown message %q", kind)
		}
	}
}

func reply(out io.Writer, shown *image.YCbCr, full bool, failure error) error {
	switch {
	case failure != nil:
		return send(out, failureReply, []byte(failure.Error()))
	case shown == nil:
		return send(out, imageReply, nil)
	}
	if !full {
		shown = stretched(shown)
	}
	var encoded bytes.Buffer
	if err := jpeg.Encode(&encoded, shown, &jpeg.Options{Quality: quality}); err != nil {
		return send(out, failureReply, []byte(err.Error()))
	}
	return send(out, imageReply, encoded.Bytes())
}

// stretched copies an image from the limited range to the full range, which JPEG has.
func stretched(video *image.YCbCr) *image.YCbCr {
	full := image.NewYCbCr(video.Rect, video.SubsampleRatio)
	stretch(full.Y, full.YStride, video.Y, video.YStride, func(value int) int { return (value - 16) * 255 / 219 })
	chroma := func(value int) int { return (value-128)*255/224 + 128 }
	stretch(full.Cb, full.CStride, video.Cb, video.CStride, chroma)
	stretch(full.Cr, full.CStride, video.Cr, video.CStride, chroma)
	return full
}

func stretch(to []byte, width int, from []byte, stride int, convert func(int) int) {
	var table [256]byte
	for value := range table {
		table[value] = byte(min(max(convert(value), 0), 255))
	}
	for row := range len(to) / width {
		line := from[row*stride:]
		for column := range width {
			to[row*width+column] = table[line[column]]
		}
	}
}

func send(out io.Writer, kind byte, content []byte) error {
	header := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content)))
	if _, err := out.Write(header); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

func receive(in io.Reader) (kind byte, content []byte, err error) {
	var header [5]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maxMessage {
		return 0, nil, fmt.Errorf("a message has %d bytes, at most %d are allowed", length, maxMessage)
	}
	content = make([]byte, length)
	_, err = io.ReadFull(in, content)
	return header[0], content, err
}
