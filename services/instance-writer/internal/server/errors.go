package server

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/services/instance-writer/internal/slots"
)

// Reasons beside those of package slots.
const (
	instanceNotFound = "InstanceNotFound"
	invalidRequest   = "InvalidRequest"
	notWritten       = "NotWritten"
)

// results are the values of the label of the reservations metric.
var results = []string{"ok", instanceNotFound, invalidRequest, notWritten,
	string(slots.OutOfRange), string(slots.NodeNotListed), string(slots.Malformed), string(slots.Held)}

// errStopping sends streams to another replica.
var errStopping = status.Error(codes.Unavailable, "stopping")

var errNoInstance = errors.New("no such Instance")

// reasonOf is the machine-readable reason of an error; "ok" without one.
func reasonOf(err error) string {
	var refusal *slots.Refusal
	var invalid invalidError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refusal):
		return string(refusal.Reason)
	case errors.As(err, &invalid):
		return invalidRequest
	case errors.Is(err, errNoInstance):
		return instanceNotFound
	default:
		return notWritten
	}
}

// invalidError is a request that can never be granted.
type invalidError string

// Error implements error.
func (e invalidError) Error() string { return string(e) }

func toStatus(err error) error {
	if err == nil {
		return nil
	}
	reason := reasonOf(err)
	code := map[string]codes.Code{
		invalidRequest: codes.InvalidArgument, instanceNotFound: codes.NotFound, notWritten: codes.Unavailable,
		string(slots.OutOfRange): codes.OutOfRange,
	}[reason]
	if code == codes.OK {
		code = codes.FailedPrecondition
	}
	info := &errdetails.ErrorInfo{Reason: reason, Domain: akriv0.Group}
	if refusal := (*slots.Refusal)(nil); errors.As(err, &refusal) {
		info.Metadata = map[string]string{"slot": refusal.Slot}
	}
	plain := status.New(code, err.Error())
	detailed, detailsErr := plain.WithDetails(info)
	if detailsErr != nil {
		return plain.Err()
	}
	return detailed.Err()
}
