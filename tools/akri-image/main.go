// Command akri-image builds this repository's container images without a
// container engine and without pulling anything: Go programs on an empty base,
// as deploy/images describes them. Equal sources give equal digests.
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
	Push  pushCommand  `cmd:"" help:"Build images and push them to a registry, all platforms under one name."`
	List  listCommand  `cmd:"" help:"List the image definitions and the platforms this machine can build."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cli commands
	parsed := kong.Parse(&cli,
		kong.Name("akri-image"),
		kong.Description("Builds container images without a container engine and without pulling anything."),
		kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Vars{"cache": cacheFolder()},
	)
	parsed.FatalIfErrorf(parsed.Run())
}
