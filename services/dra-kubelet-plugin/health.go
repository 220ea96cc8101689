package drakubeletplugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"akri.sh/services/dra-kubelet-plugin/internal/claims"
)

const (
	// healthInterval is the longest time between two messages, and healthTimeout the time after
	// which the kubelet reports the health as unknown.
	healthInterval = time.Minute
	healthTimeout  = 3 * healthInterval
)

// healthServer reports the health of devices to the kubelet.
type healthServer struct {
	drahealthv1.UnimplementedDRAResourceHealthServer
	claims   *claims.Manager
	node     string
	stopping <-chan struct{}
}

// NodeWatchResources implements the DRA health API. The first message has no known state, so that
// the second one is a change for the kubelet, which then syncs the Pods with these devices. After a
// reboot the kubelet starts Pods before this plugin. It would repeat their preparation only after
// 60 to 90 s.
func (s *healthServer) NodeWatchResources(
	_ *drahealthv1.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[drahealthv1.NodeWatchResourcesResponse],
) error {
	first := true
	for {
		devices, changed, err := s.claims.Health(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if first && devices != nil {
			if err := stream.Send(s.response(devices, unknown)); err != nil {
				return err
			}
			first = false
		}
		if devices != nil {
			if err := stream.Send(s.response(devices, seen)); err != nil {
				return err
			}
		}
		if err := s.awaitChange(stream.Context(), devices, changed); err != nil {
			return err
		}
	}
}

// awaitChange returns nil when the health differs from the last one, or when it must be repeated.
func (s *healthServer) awaitChange(ctx context.Context, last []claims.Health, changed <-chan struct{}) error {
	repeat := time.After(healthInterval)
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "dra-kubelet-plugin is stopping")
		case <-repeat:
			return nil
		case <-changed:
		}
		var devices []claims.Health
		var err error
		if devices, changed, err = s.claims.Health(ctx); err != nil {
			return status.FromContextError(err).Err()
		}
		if !slices.Equal(devices, last) {
			return nil
		}
	}
}

func unknown(claims.Health) drahealthv1.HealthStatus {
	return drahealthv1.HealthStatus_UNKNOWN
}

func seen(device claims.Health) drahealthv1.HealthStatus {
	if device.Healthy {
		return drahealthv1.HealthStatus_HEALTHY
	}
	return drahealthv1.HealthStatus_UNHEALTHY
}

func (s *healthServer) response(
	devices []claims.Health, state func(claims.Health) drahealthv1.HealthStatus,
) *drahealthv1.NodeWatchResourcesResponse {
	response := &drahealthv1.NodeWatchResourcesResponse{}
	for _, device := range devices {
		health := &drahealthv1.DeviceHealth{
			Device: &drahealthv1.DeviceIdentifier{PoolName: device.Pool, DeviceName: device.Name},
			Health: state(device), LastUpdatedTime: time.Now().Unix(), HealthCheckTimeoutSeconds: int64(healthTimeout.Seconds()),
		}
		if health.GetHealth() == drahealthv1.HealthStatus_UNHEALTHY {
			health.Message = fmt.Sprintf("node %q does not see the device", s.node)
		}
		response.Devices = append(response.Devices, health)
	}
	return response
}
