package handler_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/admin"
	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
)

func get(t *testing.T, health *admin.Health, path string) int {
	t.Helper()
	recorder := httptest.NewRecorder()
	admin.Handler(health, prometheus.NewRegistry()).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	return recorder.Code
}

func TestPollKeepsListOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []error{nil, errors.New("no answer"), nil, handler.Invalid(errors.New("gone wrong"))}
		calls := 0
		poll := handler.Poll{Interval: time.Minute, List: func(ctx context.Context, _ handler.Request) ([]*handler.Device, error) {
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			calls++
			return []*handler.Device{{Id: "a"}}, results[calls-1]
		}}
		sent, began := 0, time.Now()
		err := poll.Discover(t.Context(), handler.Request{Log: zap.NewNop()}, func([]*handler.Device) error { sent++; return nil })
		require.ErrorContains(t, err, "gone wrong")
		require.Equal(t, 4, calls)
		require.Equal(t, 2, sent)
		require.Equal(t, 3*time.Minute, time.Since(began))
	})
}

func TestPollPassesTheRequest(t *testing.T) {
	directory := handlertest.Directory(t)
	requests := make(chan handler.Request, 1)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, handler.Poll{
		List: func(_ context.Context, request handler.Request) ([]*handler.Device, error) {
			requests <- request
			return nil, nil
		},
	})
	stream := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "color: red")
	request := handlertest.Receive(t, requests)
	require.Equal(t, "color: red", request.Details)
	require.Equal(t, map[string][]byte{"user": []byte("ada"), "unset": nil}, request.Properties)
	require.Empty(t, ids(t, stream), "an empty first list is sent")
}

type lamps struct {
	Colors []string `yaml:"colors"`
	Bright bool     `yaml:"bright"`
}

func TestInvalidDetailsAreInvalidArgument(t *testing.T) {
	directory := handlertest.Directory(t)
	start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, handler.Watch(
		func(_ context.Context, request handler.Request, _ handler.Send) error {
			return handler.DecodeDetails(request, &lamps{})
		}))
	_, err := discover(t, "unix://"+filepath.Join(directory, "lamp.sock"), "lux: 3").Recv()
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.Equal(t, `discoveryDetails: line 1: unknown key "lux"`, status.Convert(err).Message())
}
