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
	role := "akri-" + strings.ToLower(e.Ref.Kind) + "-" + e.Ref.Name
	return fmt.Sprintf("%s may not read %s; grant it with: "+
		"kubectl create role %s --namespace=%s --verb=get,watch --resource=%ss --resource-name=%s && "+
		"kubectl create rolebinding %s --namespace=%s --role=%s %s",
		e.User, e.Ref, role, e.Ref.Namespace, strings.ToLower(e.Ref.Kind), e.Ref.Name, role, e.Ref.Namespace, role, e.subject())
}

func (e *ForbiddenError) subject() string {
	if account, isAccount := strings.CutPrefix(e.User, "system:serviceaccount:"); isAccount {
		return "--serviceaccount=" + account
	}
	return "--user=" + e.User
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
