// Package binary compiles Go binaries reproducibly: the same source and toolchain give the same
// bytes in any directory and with any caches.
package binary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"akri.sh/tools/akri-image/internal/definition"
)

// versionVariable is what services print for --version. The linker ignores it in other binaries.
const versionVariable = "akri.sh/libs/version.Version"

// Options select what to compile.
type Options struct {
	// Dir is the working directory of the Go command, inside the module that pins all dependencies.
	Dir string
	// Package is the main package, "." for Dir itself.
	Package string
	// Platform is the target platform.
	Platform definition.Platform
	// Version is the version that the binary reports.
	Version string
	// Cgo enables cgo if it is not nil.
	Cgo *definition.Cgo
}

// Compile writes the binary to output. The Go command does not write an output that is up to date.
func Compile(ctx context.Context, options Options, output string) error {
	env, err := environment(options)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build",
		"-trimpath", "-buildvcs=false", "-tags", tags(options),
		"-ldflags", "-s -w -X "+versionVariable+"="+options.Version,
		"-o", output, options.Package)
	cmd.Dir = options.Dir
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", options.Dir, err, text)
	}
	return nil
}

// tags selects Go's own name resolution for cgo binaries. That of glibc needs configuration files
// and libraries that are not in the images.
func tags(options Options) string {
	if options.Cgo == nil {
		return ""
	}
	return "netgo,osusergo"
}

// environment sets everything that would make the binary depend on this machine. The workspace is
// off, so that the module's go.mod pins the dependencies.
func environment(options Options) ([]string, error) {
	// GOGC=400 makes the compiler a sixth faster. A GOGC of the environment has precedence.
	env := append([]string{"GOGC=400"}, os.Environ()...)
	env = append(env,
		"GOWORK=off", "GOFLAGS=-mod=readonly",
		"GOOS="+options.Platform.OS, "GOARCH="+options.Platform.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOARM=7",
	)
	if options.Cgo == nil {
		return append(env, "CGO_ENABLED=0"), nil
	}
	compiler, err := Compiler(options.Platform, *options.Cgo)
	if err != nil {
		return nil, err
	}
	return append(env, "CGO_ENABLED=1", "CC="+compiler,
		"CGO_CFLAGS=-O2", "CGO_CPPFLAGS=", "CGO_LDFLAGS=-Wl,--build-id=none"), nil
}

// debian names the C compiler and the packages for each architecture on Debian.
var debian = map[string]struct{ compiler, arch string }{
	"amd64": {"x86_64-linux-gnu-gcc", "amd64"},
	"arm64": {"aarch64-linux-gnu-gcc", "arm64"},
	"arm":   {"arm-linux-gnueabihf-gcc", "armhf"},
}

// Compiler returns the C compiler for a platform, or an error that names the missing packages.
func Compiler(platform definition.Platform, cgo definition.Cgo) (string, error) {
	compiler := debian[platform.Arch].compiler
	if platform == definition.Native() {
		compiler = "gcc"
	}
	_, err := exec.LookPath(compiler)
	if err == nil {
		return compiler, nil
	}
	if !errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("find C compiler: %w", err)
	}
	needs := []string{"a C compiler " + compiler}
	if platform != definition.Native() {
		needs[0] = "a C cross compiler " + compiler
	}
	for _, pkg := range cgo.Packages {
		needs = append(needs, pkg+":"+debian[platform.Arch].arch)
	}
	return "", fmt.Errorf("%s needs %s", platform, strings.Join(needs, " and "))
}
