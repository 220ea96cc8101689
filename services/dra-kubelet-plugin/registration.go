package drakubeletplugin

import (
	"context"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"akri.sh/libs/node"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

// requestRegistration makes the relay register this service with the kubelet. With --resources=auto
// that is when Pods on this node first get devices by Dynamic Resource Allocation: a kubelet that
// does not know such plugins would refuse the registration again and again. Claims that are
// prepared must be unprepared, however Pods get devices now.
func (s *Service) requestRegistration(ctx context.Context) error {
	for idle := false; ; {
		snapshot, changed := s.store.Get()
		dynamic := snapshot.Resources == instancev1.Resources_RESOURCES_DRA
		if s.config.Resources != node.ResourcesAuto || dynamic || s.server.claims.AnyPrepared(ctx) {
			s.registration.SetServingStatus(relay.Registration, healthv1.HealthCheckResponse_SERVING)
			return nil
		}

		// instance-writer sends how Pods get devices before the Instances. Until then the relay is
		// not ready, so that an earlier Pod of this service does not end too soon.
		if !idle && s.store.CheckReady(ctx) == nil {
			idle = true
			s.registration.SetServingStatus(relay.Registration, healthv1.HealthCheckResponse_NOT_SERVING)
			s.env.Log.Info("not registering with the kubelet until Pods on this node get devices by Dynamic Resource Allocation")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
