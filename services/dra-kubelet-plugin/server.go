package drakubeletplugin

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node/slots"
	"akri.sh/services/dra-kubelet-plugin/internal/claims"
)

// prepareTimeout bounds a preparation, with the wait for a device that this node does not see yet,
// for a slot that another Pod still holds and for instance-writer. The kubelet waits for 45 s.
// After an error it tries again only when it next syncs the Pod, after 60 to 90 s.
const prepareTimeout = 40 * time.Second

// server implements the APIs of the kubelet for plugins. Kubernetes' kubeletplugin package is not
// used, because it needs the typed clientset.
type server struct {
	drav1.UnimplementedDRAPluginServer
	registrationv1.UnimplementedRegistrationServer

	claims  *claims.Manager
	slots   *slots.Manager
	metrics *metrics
	log     *zap.Logger
}

// GetInfo implements the registration API. The kubelet calls the plugin on the relay's socket,
// which has registered it.
func (s *server) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{
		Type: registrationv1.DRAPlugin, Name: akriv0.Driver,
		// The kubelet of 1.36 uses the v1alpha1 API of health, that of 1.37 prefers v1.
		SupportedVersions: []string{drav1.DRAPluginService, drahealthv1.DRAResourceHealthService, drahealthv1alpha1.DRAResourceHealthService},
	}, nil
}

// NotifyRegistrationStatus implements the registration API. The kubelet registers the plugin when
// it starts.
func (s *server) NotifyRegistrationStatus(
	context.Context, *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	s.slots.KubeletRestarted()
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements the DRA plugin API.
func (s *server) NodePrepareResources(
	ctx context.Context, request *drav1.NodePrepareResourcesRequest,
) (*drav1.NodePrepareResourcesResponse, error) {
	response := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	var mu sync.Mutex
	forEach(request.GetClaims(), func(claim *drav1.Claim) {
		started := time.Now()
		devices, err := s.prepare(ctx, claim)
		s.metrics.preparedClaim(err, time.Since(started))
		result := &drav1.NodePrepareResourceResponse{Devices: devices}
		if err != nil {
			result.Error = status.Convert(err).Message()
			s.log.Warn("preparing a claim failed", zap.String("claim", claim.GetNamespace()+"/"+claim.GetName()), zap.Error(err))
		}
		mu.Lock()
		defer mu.Unlock()
		response.Claims[claim.GetUid()] = result
	})
	return response, nil
}

func (s *server) prepare(ctx context.Context, claim *drav1.Claim) ([]*drav1.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	return s.claims.Prepare(ctx, claim)
}

// NodeUnprepareResources implements the DRA plugin API.
func (s *server) NodeUnprepareResources(
	ctx context.Context, request *drav1.NodeUnprepareResourcesRequest,
) (*drav1.NodeUnprepareResourcesResponse, error) {
	response := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, claim := range request.GetClaims() {
		result := &drav1.NodeUnprepareResourceResponse{}
		if err := s.claims.Unprepare(ctx, claim.GetUid()); err != nil {
			result.Error = status.Convert(err).Message()
			s.log.Warn("unpreparing a claim failed", zap.String("claim", claim.GetNamespace()+"/"+claim.GetName()), zap.Error(err))
		}
		response.Claims[claim.GetUid()] = result
	}
	return response, nil
}

// forEach calls f for all items at once, because a claim may wait for its slot, and waits.
func forEach[T any](items []T, f func(T)) {
	var group sync.WaitGroup
	for _, item := range items {
		group.Go(func() { f(item) })
	}
	group.Wait()
}
