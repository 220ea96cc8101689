package handler

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// invalidError marks an error in the request: the request must change before it can succeed.
type invalidError struct{ error }

func (i invalidError) Unwrap() error { return i.error }

// Invalid marks err as an error in the request. Its text is shown in the Configuration's status.
// Invalid(nil) is nil.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalidError{err}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[invalidError](err)
	return ok
}

// toStatus converts errors to gRPC status codes. It does not use Unavailable, which means that the
// handler stops: Akri shows all other codes in the Configuration's status.
func toStatus(err error) error {
	if isInvalid(err) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if _, ok := status.FromError(err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}
