// Command akri-image builds the container images of deploy/images: Go binaries on an empty base. It
// needs no container engine and pulls nothing. Equal sources give equal digests.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Build buildCommand `cmd:"" help:"Build images into archives that containerd and docker import."`
	Push  pushCommand  `cmd:"" help:"Build images for all platforms and push them to a registry."`
	SBOM  sbomCommand  `cmd:"" name:"sbom" help:"Write the SBOM of an archive with a Go binary to the standard output."`
	List  listCommand  `cmd:"" help:"List the image definitions and the platforms this machine can build."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cli commands
	parsed := kong.Parse(&cli,
		kong.Name("akri-image"),
		kong.Description("Builds container images without a container engine. It pulls nothing."),
		kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Vars{"cache": cacheDir()},
	)
	parsed.FatalIfErrorf(parsed.Run())
}
