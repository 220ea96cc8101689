package debugecho

import (
	"bytes"
	"io"
	"os"
)

// maxFileBytes is how much of the availability file is read.
const maxFileBytes = 64 << 10

// offline reports whether the file makes the devices unavailable. A file that cannot be read does
// not.
func offline(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes))
	return err == nil && bytes.Contains(content, []byte("OFFLINE"))
}
