package handler

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// invalid marks an error as the user's: the request must change before it can be answered.
type invalid struct{ error }

func (i invalid) Unwrap() error { return i.error }

// Invalid marks err as a mistake in the request; its text is shown to the person who wrote it. Invalid(nil) is nil.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalid{err}
}

func isInvalid(err error) bool {
	var mark invalid
	return errors.As(err, &mark)
}

// toStatus is the one place where errors become codes. Unavailable is left to a handler that goes away: Akri shows every other
// code to the user.
func toStatus(err error) error {
	if isInvalid(err) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if _, ok := status.FromError(err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}
