package e2e_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"akri.sh/integration/cluster"
)

// otherDriver is a second driver of Dynamic Resource Allocation on a node, with a CDI file of its
// own vendor. It runs in the test.
type otherDriver struct {
	drav1.UnimplementedDRAPluginServer
	registrationv1.UnimplementedRegistrationServer

	registered chan struct{}
	once       sync.Once
}

const (
	otherName   = "driver.example.com"
	otherCDI    = `{"cdiVersion": "0.5.0", "kind": "example.com/e2e", "devices": [{"name": "other", "containerEdits": {"env": ["E2E_OTHER=present"]}}]}`
	otherDevice = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: driver.example.com}
spec: {selectors: [{cel: {expression: device.driver == "driver.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: driver.example.com}
spec:
  driver: driver.example.com
  pool: {name: other, generation: 1, resourceSliceCount: 1}
  nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}]}
  devices: [{name: other}]
`
	claimOfBoth = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: e2e-both, namespace: default}
spec:
  devices:
    requests:
    - {name: device, exactly: {deviceClassName: e2e-both.akri.sh}}
    - {name: other, exactly: {deviceClassName: driver.example.com}}
`
)

// GetInfo implements the registration API.
func (*otherDriver) GetInfo(context.Context, *registrationv1.InfoRequest) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{Type: registrationv1.DRAPlugin, Name: otherName, SupportedVersions: []string{drav1.DRAPluginService}}, nil
}

// NotifyRegistrationStatus implements the registration API.
func (d *otherDriver) NotifyRegistrationStatus(
	context.Context, *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	d.once.Do(func() { close(d.registered) })
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements the DRA plugin API.
func (*otherDriver) NodePrepareResources(
	_ context.Context, request *drav1.NodePrepareResourcesRequest,
) (*drav1.NodePrepareResourcesResponse, error) {
	response := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, claim := range request.GetClaims() {
		response.Claims[claim.GetUid()] = &drav1.NodePrepareResourceResponse{Devices: []*drav1.Device{
			{RequestNames: []string{"other"}, PoolName: "other", DeviceName: "other", CdiDeviceIds: []string{"example.com/e2e=other"}},
		}}
	}
	return response, nil
}

// NodeUnprepareResources implements the DRA plugin API.
func (*otherDriver) NodeUnprepareResources(
	_ context.Context, request *drav1.NodeUnprepareResourcesRequest,
) (*drav1.NodeUnprepareResourcesResponse, error) {
	response := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, claim := range request.GetClaims() {
		response.Claims[claim.GetUid()] = &drav1.NodeUnprepareResourceResponse{}
	}
	return response, nil
}

// startOtherDriver serves the kubelet of the node until the test ends, and returns the CDI file of
// the driver.
func startOtherDriver(t *testing.T, node cluster.Node) string {
	t.Helper()
	file := filepath.Join(node.Path("/run/cdi"), "example.com-e2e.json")
	require.NoError(t, os.WriteFile(file, []byte(otherCDI), 0o600))
	t.Cleanup(func() { require.NoError(t, os.Remove(file)) })
	listener, err := net.Listen("unix", filepath.Join(node.KubeletDir(), "plugins_registry", otherName+".sock"))
	require.NoError(t, err)
	driver, server := &otherDriver{registered: make(chan struct{})}, grpc.NewServer()
	drav1.RegisterDRAPluginServer(server, driver)
	registrationv1.RegisterRegistrationServer(server, driver)
	go func() { _ = server.Serve(listener) }() // ends with the server
	t.Cleanup(server.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	select {
	case <-driver.registered:
	case <-ctx.Done():
		require.FailNow(t, "the kubelet did not register the other driver")
	}
	return file
}

// secondDriver runs a Pod whose claim has a device of Akri and one of another driver. Both prepare
// their own.
func secondDriver(t *testing.T) {
	const instance = "e2e-both-8120fe"
	node := akri.Cluster.Nodes()[0]
	file := startOtherDriver(t, node)
	apply(t, strings.ReplaceAll(otherDevice, "NODE", node.Name()))
	apply(t, echoConfiguration("e2e-both", 1, "", "foo0"))
	awaitSlice(t, instance, true)
	apply(t, claimOfBoth)
	manifest := claimingPod("both", "e2e-both")
	apply(t, manifest)
	env := environment(t, awaitReadyPod(t, "default", "both"), "main")
	require.Equal(t, "foo0", env[description])
	require.Equal(t, "present", env["E2E_OTHER"])
	requireClaims(t, instance, 1)

	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	awaitFree(t, instance)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, otherCDI, string(content))
}
