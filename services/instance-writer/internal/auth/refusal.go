package auth

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/rpc"
)

// Reason is why a call was refused.
type Reason string

// Reasons of refused calls.
const (
	ReasonNoToken     Reason = "NoToken"
	ReasonToken       Reason = "InvalidToken"
	ReasonExpired     Reason = "TokenExpired"
	ReasonAudience    Reason = "WrongAudience"
	ReasonAccount     Reason = "UnknownServiceAccount"
	ReasonNoNode      Reason = "TokenWithoutNode"
	ReasonUnknownNode Reason = "UnknownNode"
	ReasonMethod      Reason = "MethodNotAllowed"
	ReasonOtherNode   Reason = "OtherNode"
	ReasonRate        Reason = "TooManyTokens"
	ReasonCalls       Reason = "TooManyCalls"
	ReasonMessages    Reason = "TooManyMessages"
	ReasonMemory      Reason = "NotEnoughMemory"
	ReasonUnavailable Reason = "ReviewFailed"
)

var reasons = []Reason{
	ReasonNoToken, ReasonToken, ReasonExpired, ReasonAudience, ReasonAccount, ReasonNoNode, ReasonUnknownNode, ReasonMethod,
	ReasonOtherNode, ReasonRate, ReasonCalls, ReasonMessages, ReasonMemory, ReasonUnavailable,
}

// Refusal is the error of a call that is refused.
type Refusal struct {
	Reason  Reason
	message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.message }

func refuse(reason Reason, format string, arguments ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, arguments...)}
}

// unavailable returns an error that is no Refusal as one.
func unavailable(err error) error {
	if _, refused := errors.AsType[*Refusal](err); err == nil || refused {
		return err
	}
	return refuse(ReasonUnavailable, "review token: %v", err)
}

// isInvalid reports whether the API server has refused a token.
func isInvalid(err error) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Reason != ReasonUnavailable && refusal.Reason != ReasonRate
}

func (r Reason) code() codes.Code {
	switch r {
	case ReasonNoToken, ReasonToken, ReasonExpired, ReasonAudience:
		return codes.Unauthenticated
	case ReasonRate, ReasonCalls, ReasonMessages, ReasonMemory:
		return codes.ResourceExhausted
	case ReasonUnavailable:
		return codes.Unavailable
	default:
		return codes.PermissionDenied
	}
}

// toStatus converts an error to a gRPC status with a reason.
func toStatus(err error) error {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
		return err
	}
	return rpc.NewError(refusal.Reason.code(), string(refusal.Reason), refusal.message)
}
