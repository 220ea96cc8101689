package v0

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDeviceIDBytes is the longest id of a device.
const maxDeviceIDBytes = 1 << 10

// ValidateDeviceID returns why a device cannot have the id. The error follows the device in a
// sentence.
func ValidateDeviceID(id string) error {
	switch {
	case id == "":
		return errors.New("with an empty id: every device needs a stable id")
	case len(id) > maxDeviceIDBytes:
		return fmt.Errorf("with the id %.40q... of %d bytes: must be at most %d bytes", id, len(id), maxDeviceIDBytes)
	case !IsText(id) || strings.ContainsAny(id, "\t\n"):
		return fmt.Errorf("with the id %.100q: must be UTF-8 without control characters", id)
	}
	return nil
}

// IsText reports whether the text has no characters that change how a terminal or a page shows
// other text: control characters, except tabs and line breaks, and format characters such as those
// that change the direction of writing.
func IsText(text string) bool { return Escape(text) == text }

// Escape replaces the characters that IsText excludes by their codes, such as \u001b, and bytes
// that are not UTF-8 by U+FFFD. In a string of JSON the result has the same meaning.
func Escape(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isControl) {
		return text
	}
	var escaped strings.Builder
	for _, r := range text {
		if isControl(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.String()
}

// isControl includes the line and paragraph separators of Unicode. Format characters above U+FFFF
// do not change how a terminal shows other text.
func isControl(r rune) bool {
	switch {
	case r == '\n', r == '\t', ' ' <= r && r <= '~':
		return false
	case r > 0xFFFF:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}
