package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/rpc"

	"akri.sh/integration/process"
)

// preparations measures a dra-kubelet-plugin with its relay, an instance-writer and an API server.
// It returns the durations of NodePrepareResources without and with a reservation of a slot. Admin
// access reserves none.
func (b *bench) preparations(ctx context.Context) (without, with []time.Duration, err error) {
	b.progress("preparing ResourceClaims")
	const configuration = "prepare"
	w, err := startWriter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	instance := akriv0.InstanceName(configuration, akriv0.Digest("camera", "", true))
	nodes, err := w.prepare(ctx, configuration, instance, 1)
	if err != nil {
		return nil, nil, err
	}

	dir, err := os.MkdirTemp("", "akri-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("create directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	stop, err := serveNode(ctx, dir, make(chan *pluginapi.RegisterRequest, 1), configuration, instance)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	flags, err := w.Writers[0].Flags(ctx, identitytest.DRAKubeletPlugin, nodes[0])
	if err != nil {
		return nil, nil, err
	}
	plugin, err := process.Start(ctx, nil, "dra-kubelet-plugin", append(flags,
		"--node-name", nodes[0], "--socket", "unix://"+filepath.Join(dir, "plugin.sock"), "--cdi-dir", filepath.Join(dir, "cdi"),
		"--discovery-operator", "unix://"+filepath.Join(dir, "operator.sock"), "--admin-address=", "--log-level=error")...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, plugin.Stop()) }()

	relay, err := process.Start(ctx, nil, "dra-kubelet-plugin", "relay", "--plugin", "unix://"+filepath.Join(dir, "plugin.sock"),
		"--registry-dir", dir, "--admin-address=", "--log-level=error")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, relay.Stop()) }()
	conn, err := rpc.Dial("unix://"+filepath.Join(dir, akriv0.Driver+".sock"), prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()

	client := drav1.NewDRAPluginClient(conn)
	for admin, took := range map[bool]*[]time.Duration{true: &without, false: &with} {
		claim, err := w.allocate(ctx, instance, admin)
		if err != nil {
			return nil, nil, err
		}
		if *took, err = prepareRepeatedly(ctx, client, claim); err != nil {
			return nil, nil, err
		}
	}
	return without, with, nil
}

// allocate creates a ResourceClaim and allocates the device to it, as the scheduler does.
func (w *writer) allocate(ctx context.Context, instance string, admin bool) (*drav1.Claim, error) {
	name := fmt.Sprintf("admin-%t", admin)
	_, err := w.Kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"resource.kubernetes.io/admin-access": "true"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Namespace: %w", err)
	}

	claims := w.Kubernetes.ResourceV1().ResourceClaims(name)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver, AdminAccess: &admin}}}
	if claim, err = claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create ResourceClaim: %w", err)
	}

	result := resourcev1.DeviceRequestAllocationResult{
		Request: "r", Driver: akriv0.Driver, Pool: akriv0.InstancePool(namespace, instance), Device: instance, AdminAccess: &admin,
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{result}}}
	if claim, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("allocate ResourceClaim: %w", err)
	}
	return &drav1.Claim{Namespace: name, Name: name, Uid: string(claim.UID)}, nil
}

func prepareRepeatedly(ctx context.Context, client drav1.DRAPluginClient, claim *drav1.Claim) (took []time.Duration, err error) {
	claims := []*drav1.Claim{claim}
	for i := range warmUp + reservations {
		start := time.Now()
		prepared, err := client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: claims}, grpc.WaitForReady(true))
		if err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
		if message := prepared.GetClaims()[claim.GetUid()].GetError(); message != "" {
			return nil, fmt.Errorf("prepare: %s", message)
		}
		if i >= warmUp {
			took = append(took, time.Since(start))
		}
		if _, err := client.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: claims}); err != nil {
			return nil, fmt.Errorf("unprepare: %w", err)
		}
	}
	return took, nil
}
