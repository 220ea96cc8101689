// Package log creates the logger of a process, which writes to standard error.
package log

import (
	"fmt"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger for the level (debug, info, warn or error) and the format: json, or text for
// people.
func New(service, level, format string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: must be debug, info, warn or error", level)
	}
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.TimeKey = "time"
	config.MessageKey = "message"
	encoder := zapcore.NewJSONEncoder(config)
	switch format {
	case "json":
	case "text":
		config.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02 15:04:05.000")
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(config)
	default:
		return nil, fmt.Errorf("log format %q: must be json or text", format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), parsed)).With(zap.String("service", service)), nil
}
