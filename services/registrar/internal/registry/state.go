package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrCorrupt is the answer to a state file that cannot be used; it has been moved aside.
var ErrCorrupt = errors.New("state file is corrupt")

type state struct {
	Handlers []Handler `json:"handlers"`
}

// Load reads the handlers that Save wrote; none when there is no such file.
func Load(file string) ([]Handler, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	var loaded state
	if err := json.Unmarshal(text, &loaded); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), moveAside(file))
	}
	if err := check(loaded.Handlers); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), moveAside(file))
	}
	return loaded.Handlers, nil
}

// Save writes the handlers such that a crash leaves either the old file or the new one.
func Save(file string, handlers []Handler) error {
	text, err := json.Marshal(state{Handlers: handlers})
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	draft := file + ".new"
	if err := os.WriteFile(draft, text, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(draft, file); err != nil {
		return fmt.Errorf("replace state: %w", err)
	}
	return nil
}

// check holds a file to what the sockets let in: it may be of another version, or edited.
func check(handlers []Handler) error {
	if len(handlers) > MaxHandlers {
		return ErrFull
	}
	for _, handler := range handlers {
		normalize := NormalizePath
		if handler.Network {
			normalize = NormalizeHostPort
		}
		if err := CheckName(handler.Name); err != nil {
			return err
		}
		if _, err := normalize(handler.Endpoint); err != nil {
			return err
		}
		if handler.Status != Waiting && handler.Status != Active && handler.Status != Offline {
			return fmt.Errorf("status %q of %q", handler.Status, handler.Name)
		}
	}
	return nil
}

func moveAside(file string) error {
	if err := os.Rename(file, file+".corrupt"); err != nil {
		return fmt.Errorf("move state aside: %w", err)
	}
	return nil
}
