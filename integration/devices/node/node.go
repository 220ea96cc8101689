// Package node runs Node.js scripts: devices and clients built with third-party libraries.
package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"akri.sh/integration/cluster/binaries"
)

// ErrMissing is returned if Node.js or npm is missing.
var ErrMissing = errors.New("npm and Node.js 20.19 or newer are required: apt-get install nodejs npm")

// Modules installs the modules of package.json and package-lock.json in the source directory,
// unless they are installed, and returns the directory of node_modules.
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
	// The servers of a test, and those of tests of other packages, start at once.
	unlock, err := binaries.Lock(filepath.Dir(target))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	return target, install(ctx, target, content)
}

// install installs into a temporary directory and renames it, so that a target is always complete.
func install(ctx context.Context, target string, content map[string][]byte) error {
	building, err := os.MkdirTemp(filepath.Dir(target), "building-")
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
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
	if err := os.Rename(building, target); err != nil {
		return fmt.Errorf("move modules: %w", err)
	}
	return nil
}

// Program is a running script.
type Program struct {
	command *exec.Cmd
	input   io.WriteCloser
	lines   chan string
}

// Start runs a script with modules. The script must exit at the end of its standard input, so that
// it does not outlive this process.
func Start(ctx context.Context, modules, script string, arguments ...string) (*Program, error) {
	return StartCommand(exec.CommandContext(ctx, "node", append([]string{script}, arguments...)...), modules)
}

// StartCommand is Start with a prepared command, such as one in other namespaces.
func StartCommand(command *exec.Cmd, modules string) (*Program, error) {
	command.Env = append(command.Environ(), "NODE_PATH="+filepath.Join(modules, "node_modules"))
	// The wrapper makes exec use a pipe. Node.js sets its stderr to non-blocking, also for the
	// processes that share it, and a test would lose output.
	command.Stderr = struct{ io.Writer }{os.Stderr}
	input, inputErr := command.StdinPipe()
	output, outputErr := command.StdoutPipe()
	if err := errors.Join(inputErr, outputErr); err != nil {
		return nil, fmt.Errorf("create pipes: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	p := &Program{command: command, input: input, lines: make(chan string, 1000)}
	go p.read(output)
	return p, nil
}

// read keeps the first lines and discards the others.
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

// Await waits for a line with the prefix and returns the rest of it.
func (p *Program) Await(ctx context.Context, prefix string) (string, error) {
	for {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %q: %w", prefix, ctx.Err())
		case line, open := <-p.lines:
			if !open {
				return "", fmt.Errorf("wait for %q: the script has exited", prefix)
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return strings.TrimSpace(rest), nil
			}
		}
	}
}

// Send writes a line of JSON to the standard input of the script.
func (p *Program) Send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if _, err := p.input.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the script: %w", err)
	}
	return nil
}

// Stop kills the script and waits for it.
func (p *Program) Stop() {
	_ = p.input.Close()
	_ = p.command.Process.Kill()
	for range p.lines { // until its output ends
	}
	_ = p.command.Wait()
}
