package rpc

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var logOptions = []logging.Option{
	logging.WithLogOnEvents(logging.FinishCall),
	logging.WithLevels(callLevel),
	logging.WithCodes(codeOf),
}

// codeOf returns the code that the caller gets. gRPC converts context errors, also wrapped ones.
func codeOf(err error) codes.Code {
	if known, ok := status.FromError(err); ok {
		return known.Code()
	}
	return status.FromContextError(err).Code()
}

// callLevel returns error for codes that point to a bug and debug for all others.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented:
		return logging.LevelError
	default:
		return logging.LevelDebug
	}
}

// callLogger adapts zap.
func callLogger(logger *zap.Logger) logging.Logger {
	sugared := logger.Sugar()
	return logging.LoggerFunc(func(_ context.Context, level logging.Level, message string, fields ...any) {
		sugared.Logw(zapLevel(level), message, fields...)
	})
}

// zapLevel divides by 4, the distance between two levels of package logging. Info is 0 in both.
func zapLevel(level logging.Level) zapcore.Level { return zapcore.Level(level / 4) }
