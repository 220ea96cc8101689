package onvif

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// Limits of a document from the network. Messages of real cameras are far smaller.
const (
	MaxBytes    = 256 << 10
	maxDepth    = 64
	maxElements = 16 << 10
)

// Decode decodes an XML document from an untrusted sender into v, by the rules of encoding/xml.
// It returns an error if the document exceeds the limits, has a DTD or is not well-formed. Tags in
// v should not name a namespace, because many cameras use wrong ones.
func Decode(document []byte, v any) error {
	if len(document) > MaxBytes {
		return fmt.Errorf("document has %d bytes, the limit is %d", len(document), MaxBytes)
	}
	raw := xml.NewDecoder(bytes.NewReader(document))
	raw.CharsetReader = charsetReader
	decoder := xml.NewTokenDecoder(&limitReader{raw: raw})
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("decode XML: %w", err)
	}
	for {
		switch _, err := decoder.Token(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("decode XML: %w", err)
		}
	}
}

// limitReader passes on the tokens of raw until the document exceeds a limit.
type limitReader struct {
	raw             *xml.Decoder
	depth, elements int
}

// Token implements xml.TokenReader.
func (r *limitReader) Token() (xml.Token, error) {
	token, err := r.raw.RawToken()
	if err != nil {
		return nil, err
	}
	switch token.(type) {
	case xml.Directive:
		return nil, errors.New("document has a DTD")
	case xml.StartElement:
		if r.depth == 0 && r.elements > 0 {
			return nil, errors.New("document has more than one root element")
		}
		r.depth, r.elements = r.depth+1, r.elements+1
		if r.depth > maxDepth || r.elements > maxElements {
			return nil, fmt.Errorf("document exceeds %d elements or a depth of %d", maxElements, maxDepth)
		}
	case xml.EndElement:
		r.depth--
	}
	return token, nil
}

// charsetReader supports the encodings besides UTF-8 that cameras declare.
func charsetReader(charset string, input io.Reader) (io.Reader, error) {
	switch strings.ToLower(charset) {
	case "us-ascii":
		return input, nil
	case "iso-8859-1":
		return charmap.ISO8859_1.NewDecoder().Reader(input), nil
	}
	return nil, fmt.Errorf("unsupported encoding %q", charset)
}
