package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// ErrCorrupt means that the state file cannot be used. Load has renamed it.
var ErrCorrupt = errors.New("state file is corrupt")

// The next version reads the state file of this one: its format must not change after a release.
type state struct {
	Handlers []savedHandler `json:"handlers"`
}

type savedHandler struct {
	Handler
	Status string `json:"status"`
	// OfflineCause is empty without a cause.
	OfflineCause string `json:"offlineCause,omitempty"`
}

var statusNames = map[registrarv1.HandlerStatus]string{Waiting: "Waiting", Active: "Active", Offline: "Offline"}

var causeNames = map[registrarv1.OfflineCause]string{SocketMissing: "SocketMissing"}

// StatusName returns the name of a status in the state file, metrics and logs. It is empty for an
// unknown status.
func StatusName(status registrarv1.HandlerStatus) string { return statusNames[status] }

// Load reads the handlers that Save wrote. It returns none if the file does not exist.
func Load(file string) ([]Handler, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	handlers, err := decode(text)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrCorrupt, err), moveAside(file))
	}
	return handlers, nil
}

// Save replaces the file in one step, so that a crash leaves the old file or the new one.
func Save(file string, handlers []Handler) error {
	saved := state{Handlers: make([]savedHandler, 0, len(handlers))}
	for _, handler := range handlers {
		saved.Handlers = append(saved.Handlers, savedHandler{handler, StatusName(handler.Status), causeNames[handler.OfflineCause]})
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("create state directory: %w", err)
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return fmt.Errorf("replace state: %w", err)
	}
	return nil
}

// decode validates the handlers like registrations: another version may have written the file, or a
// user edited it.
func decode(text []byte) ([]Handler, error) {
	var saved state
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, err
	}
	if len(saved.Handlers) > MaxHandlers {
		return nil, ErrFull
	}
	handlers := make([]Handler, 0, len(saved.Handlers))
	for _, s := range saved.Handlers {
		handler, err := s.handler()
		if err != nil {
			return nil, err
		}
		handlers = append(handlers, handler)
	}
	return handlers, nil
}

func (s savedHandler) handler() (Handler, error) {
	normalize := NormalizePath
	if s.Network {
		normalize = NormalizeHostPort
	}
	if err := ValidateName(s.Name); err != nil {
		return Handler{}, err
	}
	if _, err := normalize(s.Endpoint); err != nil {
		return Handler{}, err
	}
	for cause, name := range causeNames {
		if name == s.OfflineCause {
			s.Handler.OfflineCause = cause
		}
	}
	for status, name := range statusNames {
		if name == s.Status {
			s.Handler.Status = status
			return s.Handler, nil
		}
	}
	return Handler{}, fmt.Errorf("status %q of handler %q: must be Waiting, Active or Offline", s.Status, s.Name)
}

func moveAside(file string) error {
	if err := os.Rename(file, file+".corrupt"); err != nil {
		return fmt.Errorf("rename corrupt state file: %w", err)
	}
	return nil
}
