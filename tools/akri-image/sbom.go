package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"akri.sh/tools/akri-image/internal/sbom"
)

type sbomCommand struct {
	Version  string `required:"" help:"Version of the binary."`
	Platform string `required:"" help:"Platform of the binary, such as linux/amd64."`
	Binary   string `arg:"" type:"existingfile" help:"The binary."`
	Archive  string `arg:"" type:"existingfile" help:"The archive with the binary."`
}

// Run prints the SPDX document of the archive.
func (c *sbomCommand) Run() error {
	info, err := buildinfo.ReadFile(c.Binary)
	if err != nil {
		return fmt.Errorf("read modules: %w", err)
	}
	archive, err := os.Open(c.Archive)
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	defer archive.Close()
	digest, _, err := v1.SHA256(archive)
	if err != nil {
		return fmt.Errorf("compute digest: %w", err)
	}

	document, err := sbom.Document(filepath.Base(c.Archive), c.Version, digest, []sbom.Image{{
		Digest: digest, Platform: c.Platform, Packages: sbom.Sorted(sbom.Modules(info, c.Version)), Archive: true,
	}})
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(document)
	return err
}
