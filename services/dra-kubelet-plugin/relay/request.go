package relay

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
)

// Registration is the service whose health on the socket of the plugin is whether the plugin
// requests a registration: SERVING, or NOT_SERVING. Until the plugin can decide it, the service is
// unknown.
const Registration = "pluginregistration.Registration"

// requestInterval is the longest time between two checks. A stream would delay the end of the
// plugin, which waits for its calls.
const requestInterval = time.Second

// awaitRequest waits until the plugin requests a registration, or returns false when ctx has ended.
// A plugin that was registered on this node before is registered always: the kubelet keeps the
// claims of its Pods, also those that it could not prepare, and cannot end these Pods without the
// plugin.
func (r *Relay) awaitRequest(ctx context.Context) bool {
	if _, err := os.Stat(r.record()); err == nil {
		return true
	}
	health, delays := healthv1.NewHealthClient(r.plugin), rpc.NewBackOff(firstDelay, requestInterval)
	for {
		response, err := health.Check(ctx, &healthv1.HealthCheckRequest{Service: Registration}, grpc.WaitForReady(true))
		if err != nil {
			r.env.Log.Debug("the plugin has not stated yet whether it requests a registration", zap.Error(err))
		}
		switch response.GetStatus() {
		case healthv1.HealthCheckResponse_SERVING:
			r.idle.Store(false)
			return true
		case healthv1.HealthCheckResponse_NOT_SERVING:
			r.idle.Store(true)
		case healthv1.HealthCheckResponse_UNKNOWN, healthv1.HealthCheckResponse_SERVICE_UNKNOWN:
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(delays.NextBackOff()):
		}
	}
}

// record returns the path of the file that exists if the kubelet has registered the plugin on this
// node. The kubelet ignores files whose name begins with a dot.
func (r *Relay) record() string { return filepath.Join(r.config.RegistryDir, "."+akriv0.Driver) }

// recordRegistration creates the record.
func (r *Relay) recordRegistration() error {
	if err := os.WriteFile(r.record(), nil, 0o600); err != nil {
		r.env.Log.Error("recording the registration failed", zap.Error(err))
		return status.Error(codes.Internal, "recording the registration failed")
	}
	return nil
}
