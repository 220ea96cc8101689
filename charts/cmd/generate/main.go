// Command generate writes the generated files of the charts. Run it in the directory charts.
package main

import (
	"log"
	"os"
	"path/filepath"

	"akri.sh/charts"
)

func main() {
	if err := generate(".."); err != nil {
		log.Fatalf("generate: %v", err)
	}
}

func generate(root string) error {
	sources, err := charts.Load(root)
	if err != nil {
		return err
	}
	files, err := sources.Files()
	if err != nil {
		return err
	}
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
