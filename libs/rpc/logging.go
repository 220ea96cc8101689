package rpc

import (
	"context"
	"fmt"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var logOptions = []logging.Option{
	logging.WithLogOnEvents(logging.FinishCall),
	logging.WithLevels(callLevel),
	logging.WithCodes(codeOf),
}

// codeOf is the code that the caller gets: gRPC makes its own of the end of a context, also one that is wrapped.
func codeOf(err error) codes.Code {
	if known, ok := status.FromError(err); ok {
		return known.Code()
	}
	return status.FromContextError(err).Code()
}

// callLevel keeps the ordinary quiet: only what a person must mend is louder than debug.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented:
		return logging.LevelError
	default:
		return logging.LevelDebug
	}
}

// callLogger adapts zap. Each call gets its own fields: nothing is kept between calls.
func callLogger(logger *zap.Logger) logging.Logger {
	return logging.LoggerFunc(func(_ context.Context, level logging.Level, message string, fields ...any) {
		check := logger.Check(zapLevel(level), message)
		if check == nil {
			return
		}
		own := make([]zap.Field, 0, len(fields)/2)
		for i := 0; i+1 < len(fields); i += 2 {
			own = append(own, zap.Any(fmt.Sprint(fields[i]), fields[i+1]))
		}
		check.Write(own...)
	})
}
