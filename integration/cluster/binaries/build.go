package binaries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"akri.sh/integration/progress"
)

// compileInterval is the time between two messages while programs are compiled. A test shortens it.
var compileInterval = 15 * time.Second

// build is one run of the Go command. It compiles the packages that its programs have in common
// once, and links several programs at the same time.
type build []pending

// group returns the builds of the programs, in their order.
func group(programs []pending) []build {
	var builds []build
	for _, p := range programs {
		i := slices.IndexFunc(builds, func(b build) bool {
			return b[0].Module == p.Module && b[0].Tags == p.Tags && b[0].LinkFlags == p.LinkFlags && b[0].Architecture == p.Architecture
		})
		if i < 0 {
			builds = append(builds, build{p})
		} else {
			builds[i] = append(builds[i], p)
		}
	}
	return builds
}

func (b build) names() string {
	names := make([]string, len(b))
	for i, p := range b {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

func (b build) packages() []string {
	packages := make([]string, len(b))
	for i, p := range b {
		packages[i] = p.Package
	}
	return packages
}

// run builds the programs and replaces each one in dir. It calls show with the state.
func (b build) run(ctx context.Context, root, dir string, show func(state string)) error {
	show("")
	partial, remove, err := partialDir(dir)
	if err != nil {
		return err
	}
	defer remove()

	var compiled, all atomic.Int64
	err = progress.While(compileInterval, func(elapsed time.Duration) {
		show(fmt.Sprintf(": %d of at most %d packages after %s", compiled.Load(), all.Load(), elapsed.Round(time.Second)))
	}, func() error {
		dependencies, err := b.dependencies(ctx, root)
		if err != nil {
			return err
		}
		all.Store(int64(dependencies))
		return b.compile(ctx, root, partial, &compiled)
	})
	if err != nil {
		return err
	}

	for _, p := range b {
		if err := p.install(filepath.Join(partial, p.output()), dir); err != nil {
			return err
		}
	}
	return nil
}

// partialDir returns a new directory for programs that are incomplete. It removes those of builds
// that were killed.
func partialDir(dir string) (partial string, remove func(), err error) {
	const pattern = ".partial-*"
	old, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return "", nil, fmt.Errorf("find directories: %w", err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return "", nil, fmt.Errorf("remove a directory: %w", err)
		}
	}
	if partial, err = os.MkdirTemp(dir, pattern); err != nil {
		return "", nil, fmt.Errorf("create directory: %w", err)
	}
	return partial, func() { _ = os.RemoveAll(partial) }, nil
}

// dependencies returns the number of packages of the programs.
func (b build) dependencies(ctx context.Context, root string) (int, error) {
	arguments := append([]string{"list", "-deps", "-mod=readonly", "-tags", b[0].Tags}, b.packages()...)
	output, err := b.command(ctx, root, arguments...).Output()
	if err != nil {
		return 0, fmt.Errorf("list packages of %s: %w", b.names(), err)
	}
	return bytes.Count(output, []byte("\n")), nil
}

// compile writes the programs to the directory and counts the packages that it compiles.
func (b build) compile(ctx context.Context, root, directory string, compiled *atomic.Int64) error {
	arguments := append([]string{"build", "-v"}, b[0].flags(directory+"/")...)
	command := b.command(ctx, root, append(arguments, b.packages()...)...)
	output := &lines{count: compiled}
	command.Stdout, command.Stderr = output, output
	if err := command.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", b.names(), err, lastLines(output.text.String(), 20))
	}
	return nil
}

// lines keeps what is written to it and counts its lines. It does not embed the buffer, because
// io.Copy would call ReadFrom of the buffer, which counts nothing.
type lines struct {
	text  bytes.Buffer
	count *atomic.Int64
}

func (l *lines) Write(text []byte) (int, error) {
	l.count.Add(int64(bytes.Count(text, []byte("\n"))))
	return l.text.Write(text)
}

func (b build) command(ctx context.Context, root string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = filepath.Join(root, b[0].Module)
	// GOGC=400 makes the compiler a sixth faster. A GOGC of the environment has precedence.
	command.Env = append(append([]string{"GOGC=400"}, os.Environ()...), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if b[0].Architecture != "" {
		command.Env = append(command.Env, "GOARCH="+b[0].Architecture)
	}
	return command
}

// install replaces the program in dir.
func (p pending) install(built, dir string) error {
	if err := os.Rename(built, filepath.Join(dir, p.Name)); err != nil {
		return fmt.Errorf("install %s: %w", p.Name, err)
	}
	return os.WriteFile(filepath.Join(dir, "."+p.Name+".stamp"), []byte(p.stamp), 0o644)
}
