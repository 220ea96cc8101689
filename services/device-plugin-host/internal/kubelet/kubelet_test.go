package kubelet_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/services/device-plugin-host/internal/kubelet"
)

func TestWatchLogsLastingFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		dir := kubelet.NewSocketDir(filepath.Join(t.TempDir(), "missing"), zap.New(core))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, dir.Watch(ctx, func() {}))
		require.Equal(t, 1, logs.FilterMessageSnippet("keeps failing").Len())
	})
}
