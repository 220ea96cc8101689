// Package mjpeg makes JPEG images from frames of cameras.
package mjpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"slices"
	"sync"
)

// Markers of segments in a JPEG image.
const (
	startOfImage  = 0xD8
	huffmanTables = 0xC4
	startOfScan   = 0xDA
)

var errNoImage = errors.New("the frame is not a JPEG image")

// Complete returns the image in a frame in the format MJPG. Cameras may omit Huffman tables,
// because MJPG implies those of the JPEG standard. Complete adds them, because JPEG decoders need
// them.
func Complete(frame []byte) ([]byte, error) {
	end, err := headerEnd(frame)
	if err != nil {
		return nil, err
	}
	header, scan := frame[:end], frame[end:]
	if _, found := segment(header, huffmanTables); found {
		return slices.Clone(frame), nil
	}
	return slices.Concat(header, standardTables(), scan), nil
}

// headerEnd returns the position of the scan.
func headerEnd(frame []byte) (int, error) {
	if !bytes.HasPrefix(frame, []byte{0xFF, startOfImage}) {
		return 0, errNoImage
	}
	scan, found := segment(frame, startOfScan)
	if !found {
		return 0, errNoImage
	}
	return scan.start, nil
}

type span struct{ start, end int }

// segment finds a segment of an image that begins with the marker of its start.
func segment(image []byte, marker byte) (span, bool) {
	for at := 2; at+4 <= len(image) && image[at] == 0xFF; {
		// The length includes its own two bytes.
		end := at + 2 + int(binary.BigEndian.Uint16(image[at+2:]))
		if image[at+1] == marker {
			return span{at, min(end, len(image))}, true
		}
		if image[at+1] == startOfScan {
			break // compressed data follows
		}
		at = end
	}
	return span{}, false
}

// standardTables returns the segment with the tables of the JPEG standard (ITU-T T.81, annex K.3),
// which the encoder of the standard library uses.
var standardTables = sync.OnceValue(func() []byte {
	var encoded bytes.Buffer
	// Writing to memory does not fail.
	_ = jpeg.Encode(&encoded, image.NewYCbCr(image.Rect(0, 0, 1, 1), image.YCbCrSubsampleRatio422), nil)
	tables, _ := segment(encoded.Bytes(), huffmanTables)
	return encoded.Bytes()[tables.start:tables.end]
})

// Encode returns the image in a frame in the format YUYV.
func Encode(frame []byte, width, height, bytesPerLine int) ([]byte, error) {
	if width <= 0 || height <= 0 || width%2 != 0 || bytesPerLine < 2*width || len(frame) < height*bytesPerLine {
		return nil, fmt.Errorf("a frame of %d bytes is not an image of %d x %d pixels", len(frame), width, height)
	}
	picture := image.NewYCbCr(image.Rect(0, 0, width, height), image.YCbCrSubsampleRatio422)
	for y := range height {
		line := frame[y*bytesPerLine:]
		for pair := range width / 2 {
			group := line[4*pair : 4*pair+4]
			picture.Y[y*picture.YStride+2*pair] = group[0]
			picture.Cb[y*picture.CStride+pair] = group[1]
			picture.Y[y*picture.YStride+2*pair+1] = group[2]
			picture.Cr[y*picture.CStride+pair] = group[3]
		}
	}
	var encoded bytes.Buffer
	if err := jpeg.Encode(&encoded, picture, nil); err != nil {
		return nil, fmt.Errorf("encode image: %w", err)
	}
	return encoded.Bytes(), nil
}
