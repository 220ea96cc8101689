package properties

import (
	"errors"
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

var (
	// ErrNotFound means that an object or a key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrUnread means that an object has not been read yet.
	ErrUnread = errors.New("not read yet")
)

// ForbiddenError means that an object may not be read, even if it is optional: its existence is
// unknown.
type ForbiddenError struct {
	Ref  Ref
	User string // of this process
}

// Error returns the commands that grant the rights.
func (e *ForbiddenError) Error() string {
	subject := akriv0.Subject{Kind: e.Ref.Kind, Namespace: e.Ref.Namespace, Name: e.Ref.Name}
	return fmt.Sprintf("instance-writer may not read %s; grant the right with: %s",
		e.Ref, strings.Join(akriv0.GrantCommands(subject, e.User), " && "))
}

func reasonOf(err error) string {
	var forbidden *ForbiddenError
	switch {
	case errors.As(err, &forbidden):
		return akriv0.ReasonPropertyForbidden
	case errors.Is(err, ErrNotFound):
		return akriv0.ReasonPropertyNotFound
	default:
		return akriv0.ReasonDiscoverFailed
	}
}
