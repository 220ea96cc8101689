package rpc

import (
	"context"
	"fmt"

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

// callLogger adapts zap. It does not keep fields between calls.
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

func zapLevel(level logging.Level) zapcore.Level {
	switch level {
	case logging.LevelDebug:
		return zapcore.DebugLevel
	case logging.LevelInfo:
		return zapcore.InfoLevel
	case logging.LevelWarn:
		return zapcore.WarnLevel
	default:
		return zapcore.ErrorLevel
	}
}
