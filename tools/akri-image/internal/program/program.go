// Package program compiles Go programs so that the same source and the same
// toolchain give the same bytes, wherever the checkout and the caches are.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"akri.sh/tools/akri-image/internal/definition"
)

// versionVariable is what every program prints for --version. The linker
// ignores it for a program that does not have it.
const versionVariable = "akri.sh/libs/version.Version"

// Program is one thing to compile.
type Program struct {
	// Folder is where the Go command runs: inside the module that decides the
	// versions of all dependencies.
	Folder string
	// Package is the main package, "." for Folder itself.
	Package string
	// Platform is what to compile for.
	Platform definition.Platform
	// Version is what the program calls itself.
	Version string
	// Cgo links C libraries in when it is not nil.
	Cgo *definition.Cgo
}

// Compile writes the program to output. When output is up to date already the
// Go command leaves it alone.
func Compile(ctx context.Context, p Program, output string) error {
	env, err := environment(p)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build",
		"-trimpath", "-buildvcs=false", "-tags", strings.Join(tags(p), ","),
		"-ldflags", "-s -w -X "+versionVariable+"="+p.Version,
		"-o", output, p.Package)
	cmd.Dir = p.Folder
	cmd.Env = env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", p.Folder, err, text)
	}
	return nil
}

// small leaves out what would be in memory and not used: gRPC's own tracing,
// which nobody looks at and which keeps html/template, 5 % of a program; and
// net/http's HTTP/2, 3 % of one: gRPC and client-go bring their own, metrics
// and webhooks are asked for by HTTP/1.1.
var small = []string{"grpcnotrace", "nethttpomithttp2"}

// tags keeps name resolution in Go for cgo programs too: glibc's would want
// configuration files and libraries that no image has.
func tags(p Program) []string {
	if p.Cgo == nil {
		return small
	}
	return append([]string{"netgo", "osusergo"}, small...)
}

// environment fixes everything that could leak from this machine into the
// program. The workspace is off so that a module's own go.mod decides its
// dependencies and one service's image does not change with another's.
func environment(p Program) ([]string, error) {
	// The compiler is a sixth faster when it collects its garbage less often; a GOGC of the user's own wins.
	env := append([]string{"GOGC=400"}, os.Environ()...)
	env = append(env,
		"GOWORK=off", "GOFLAGS=-mod=readonly",
		"GOOS="+p.Platform.OS, "GOARCH="+p.Platform.Arch, "GOAMD64=v1", "GOARM64=v8.0",
	)
	if p.Cgo == nil {
		return append(env, "CGO_ENABLED=0"), nil
	}
	compiler, err := Compiler(p.Platform, *p.Cgo)
	if err != nil {
		return nil, err
	}
	return append(env, "CGO_ENABLED=1", "CC="+compiler,
		"CGO_CFLAGS=-O2", "CGO_CPPFLAGS=", "CGO_LDFLAGS=-Wl,--build-id=none"), nil
}

// compilers names the C compiler for each architecture on Debian.
var compilers = map[string]string{
	"amd64": "x86_64-linux-gnu-gcc",
	"arm64": "aarch64-linux-gnu-gcc",
}

// Compiler names the C compiler for a platform, or says what is missing.
func Compiler(platform definition.Platform, cgo definition.Cgo) (string, error) {
	compiler := compilers[platform.Arch]
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
		needs = append(needs, pkg+":"+platform.Arch)
	}
	return "", fmt.Errorf("%s needs %s", platform, strings.Join(needs, " and "))
}
