package rpc

import (
	"context"
	"fmt"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

var logOptions = []logging.Option{
	logging.WithLogOnEvents(logging.FinishCall),
	logging.WithLevels(callLevel),
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
