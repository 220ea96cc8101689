// Package node runs programs for Node.js: devices and clients made of libraries that are not ours.
package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"akri.sh/integration/cluster/binaries"
)

// ErrMissing says what to install.
var ErrMissing = errors.New("node 20.19 or newer with npm is needed: apt-get install nodejs npm")

// Modules installs what the package.json and package-lock.json of a folder pin, once for each state of them, and
// returns the folder of it, with a node_modules in it.
func Modules(ctx context.Context, source string) (string, error) {
	if _, err := exec.LookPath("npm"); err != nil {
		return "", ErrMissing
	}
	files := []string{"package.json", "package-lock.json"}
	sum := sha256.New()
	content := map[string][]byte{}
	for _, file := range files {
		read, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", fmt.Errorf("read pinned modules: %w", err)
		}
		content[file] = read
		_, _ = sum.Write(read)
	}
	cache, err := binaries.CacheDir()
	if err != nil {
		return "", err
	}
	target := filepath.Join(cache, "node", hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	return target, install(ctx, target, content)
}

// install builds beside the target and moves: a target is always whole.
func install(ctx context.Context, target string, content map[string][]byte) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	building, err := os.MkdirTemp(filepath.Dir(target), "building-")
	if err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(building) }()
	for file, text := range content {
		if err := os.WriteFile(filepath.Join(building, file), text, 0o600); err != nil {
			return fmt.Errorf("write pinned modules: %w", err)
		}
	}
	command := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error")
	command.Dir = building
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, bytes.TrimSpace(output))
	}
	if err := os.Rename(building, target); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("move modules: %w", err)
	}
	return nil
}

// Program is one that runs.
type Program struct {
	command *exec.Cmd
	input   io.Closer
	lines   chan string
}

// Start runs a script with modules. The script ends with its standard input, so that it never outlives this process.
func Start(ctx context.Context, modules, script string, arguments ...string) (*Program, error) {
	return StartCommand(exec.CommandContext(ctx, "node", append([]string{script}, arguments...)...), modules)
}

// StartCommand is Start for a command that is prepared otherwise, such as one in namespaces of its own.
func StartCommand(command *exec.Cmd, modules string) (*Program, error) {
	command.Env = append(command.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	// Through a pipe of its own: Node.js makes what it is given non-blocking, for whoever shares it too, and a test would lose what
	// it prints.
	command.Stderr = struct{ io.Writer }{os.Stderr}
	input, inputErr := command.StdinPipe()
	output, outputErr := command.StdoutPipe()
	if err := errors.Join(inputErr, outputErr); err != nil {
		return nil, fmt.Errorf("make pipes: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	p := &Program{command: command, input: input, lines: make(chan string, 1000)}
	go p.read(output)
	return p, nil
}

// read keeps the first lines; a program that says more is still read.
func (p *Program) read(output io.Reader) {
	defer close(p.lines)
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		select {
		case p.lines <- scanner.Text():
		default:
		}
	}
}

// Await waits until the program prints a line that begins so, and returns the rest of it.
func (p *Program) Await(ctx context.Context, beginning string) (string, error) {
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("await %q: %w", beginning, ctx.Err())
		case line, open := <-p.lines:
			if !open {
				return "", fmt.Errorf("await %q: the program has ended", beginning)
			}
			if rest, found := strings.CutPrefix(line, beginning); found {
				return strings.TrimSpace(rest), nil
			}
		}
	}
}

// Stop ends the program and waits for it.
func (p *Program) Stop() {
	_ = p.input.Close()
	_ = p.command.Process.Kill()
	for range p.lines { // until its output ends
	}
	_ = p.command.Wait()
}
