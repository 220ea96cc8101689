package decode

/*
#cgo LDFLAGS: -lopenh264
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <wels/codec_api.h>

typedef struct {
	ISVCDecoder *decoder;
	unsigned char *planes[3];
	SBufferInfo info;
} akri_decoder;

static akri_decoder *akri_open(void) {
	akri_decoder *d = calloc(1, sizeof *d);
	SDecodingParam parameters;
	int level = WELS_LOG_QUIET;
	if (d == NULL)
		return NULL;
	if (WelsCreateDecoder(&d->decoder) != 0) {
		free(d);
		return NULL;
	}
	memset(&parameters, 0, sizeof parameters);
	parameters.sVideoProperty.eVideoBsType = VIDEO_BITSTREAM_AVC;
	parameters.eEcActiveIdc = ERROR_CON_DISABLE;
	(*d->decoder)->SetOption(d->decoder, DECODER_OPTION_TRACE_LEVEL, &level);
	if ((*d->decoder)->Initialize(d->decoder, &parameters) != 0) {
		WelsDestroyDecoder(d->decoder);
		free(d);
		return NULL;
	}
	return d;
}

static int akri_decode(akri_decoder *d, const unsigned char *data, int length) {
	memset(&d->info, 0, sizeof d->info);
	return (*d->decoder)->DecodeFrameNoDelay(d->decoder, data, length, d->planes, &d->info);
}

static int akri_ready(akri_decoder *d) { return d->info.iBufferStatus; }
static SSysMEMBuffer akri_size(akri_decoder *d) { return d->info.UsrData.sSystemBuffer; }
*/
import "C"

import (
	"errors"
	"fmt"
	"image"
	"unsafe"
)

// library decodes H.264 with OpenH264 (https://github.com/cisco/openh264).
type library struct {
	decoder *C.akri_decoder
}

func open() (*library, error) {
	decoder := C.akri_open()
	if decoder == nil {
		return nil, errors.New("OpenH264 cannot be initialized")
	}
	return &library{decoder}, nil
}

// decode decodes a frame in the format of Annex B. It returns nil if the frame is not shown now.
// The image is valid until the next call.
func (l *library) decode(frame []byte) (*image.YCbCr, error) {
	if len(frame) == 0 {
		return nil, errors.New("the frame is empty")
	}
	state := C.akri_decode(l.decoder, (*C.uchar)(unsafe.SliceData(frame)), C.int(len(frame)))
	if state != 0 {
		return nil, fmt.Errorf("OpenH264: state %#x", int(state))
	}
	if C.akri_ready(l.decoder) != 1 {
		return nil, nil
	}
	size := C.akri_size(l.decoder)
	width, height, stride, chroma := int(size.iWidth), int(size.iHeight), int(size.iStride[0]), int(size.iStride[1])
	rows := (height + 1) / 2
	plane := func(at, length int) []byte { return unsafe.Slice((*byte)(l.decoder.planes[at]), length) }
	return &image.YCbCr{
		Y: plane(0, stride*height), Cb: plane(1, chroma*rows), Cr: plane(2, chroma*rows),
		YStride: stride, CStride: chroma, SubsampleRatio: image.YCbCrSubsampleRatio420, Rect: image.Rect(0, 0, width, height),
	}, nil
}
