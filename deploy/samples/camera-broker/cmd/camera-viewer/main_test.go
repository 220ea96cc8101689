package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlainText checks that the viewer calls brokers in plain text only if ALLOW_PLAIN_TEXT is set.
func TestPlainText(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	const missing = "CAMERAS_CA_FILE is not set: name the file with the certificates of the brokers, or set ALLOW_PLAIN_TEXT=true"
	t.Setenv("ADDRESS", "no address")
	require.ErrorContains(t, run(t.Context(), log), "CAMERAS is not set: name the headless Service of the brokers")
	t.Setenv("CAMERAS", "cameras.default.svc")
	require.ErrorContains(t, run(t.Context(), log), missing)

	t.Setenv("ALLOW_PLAIN_TEXT", "true")
	require.EqualError(t, run(t.Context(), log), "listen tcp: address no address: missing port in address")
}
