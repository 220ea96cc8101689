package mesh

import (
	"errors"
	"fmt"
	"path/filepath"

	"akri.sh/integration/cluster/binaries"
)

// ImageFiles returns the image archives in dir, by default in the directory that `make images`
// writes.
func ImageFiles(dir string) ([]string, error) {
	if dir == "" {
		cache, err := binaries.CacheDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(cache, "images")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no images in %s; run make images", dir))
	}
	return files, nil
}
