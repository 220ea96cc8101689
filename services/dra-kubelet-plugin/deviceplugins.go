package drakubeletplugin

import (
	"context"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/node/slots"
	"akri.sh/services/dra-kubelet-plugin/internal/checkpoint"
)

// newReclaimer returns what device-plugin-host does for Pods that run: it releases the slots of
// those that end, and takes back those that are recorded as free. Pods that got devices through
// device plugins keep running when device-plugin-host leaves the node. It does nothing while
// device-plugin-host runs.
func (s *Service) newReclaimer(podResources grpc.ClientConnInterface, manager *slots.Manager) *slots.Reclaimer {
	pods := slots.NewKubelet(podResources, s.ownPod, s.config.KubeletDir)
	writer := checkpoint.Writer{Dir: s.config.KubeletDir, Log: s.env.Log, Metrics: s.env.Metrics}
	return slots.NewReclaimer(slots.ReclaimerConfig{
		Manager: manager, Log: s.env.Log, OnResult: s.metrics.devicePluginSlots.Add,
		PodDevices: pods.PodDevices, CheckpointDevices: pods.CheckpointDevices,
		RewriteCheckpoint: func(ctx context.Context, resource string) {
			if err := writer.Rewrite(ctx, resource); err != nil {
				s.env.Log.Warn("making the kubelet write its checkpoint failed", zap.String("resource", resource), zap.Error(err))
			}
		},
		Lock: func() (func(), error) { return slots.TryLock(s.config.KubeletDir) },
	})
}
