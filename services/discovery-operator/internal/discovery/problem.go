package discovery

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// maxMessageBytes limits the text of a handler in the status of a Configuration.
const maxMessageBytes = 2 << 10

// problemOf returns the problem that a user can solve. It returns nil for the end of a stream and
// for a lost connection.
func problemOf(err error, handler *registrarv1.Handler) *instancev1.Problem {
	answer, _ := status.FromError(err)
	switch {
	case errors.Is(err, io.EOF), answer.Code() == codes.Unavailable, answer.Code() == codes.Canceled:
		return nil
	case answer.Code() == codes.InvalidArgument:
		return newProblem(akriv0.ReasonInvalidDetails, answer.Message())
	default:
		return newProblem(akriv0.ReasonDiscoverFailed,
			fmt.Sprintf("discovery with Discovery Handler %q at %s failed: %v", handler.GetName(), handler.GetEndpoint(), err))
	}
}

func newProblem(reason, message string) *instancev1.Problem {
	if len(message) > maxMessageBytes {
		message = strings.ToValidUTF8(message[:maxMessageBytes], "") + "..."
	}
	return &instancev1.Problem{Reason: reason, Message: message}
}
