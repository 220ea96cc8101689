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
	kind := strings.ToLower(e.Ref.Kind)
	role, namespace := "akri-"+kind+"-"+e.Ref.Name, e.Ref.Namespace
	return fmt.Sprintf("instance-writer may not read %s; grant the right with: "+
		"kubectl create role %s -n %s --verb=get,watch --resource=%ss --resource-name=%s && "+
		"kubectl create rolebinding %s -n %s --role=%s %s",
		e.Ref, role, namespace, kind, e.Ref.Name, role, namespace, role, e.subject())
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
