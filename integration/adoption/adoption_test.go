// Package adoption_test checks that the mesh adopts the objects of upstream Akri 0.13 unchanged.
package adoption_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/process"
)

var api *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &api) }

const (
	timeout      = 30 * time.Second
	pollInterval = 25 * time.Millisecond
	// stale is the Instance of a node that no longer exists.
	stale = "Instance/akri-udev-70f45b"
)

func TestUpstreamObjectsAreAdopted(t *testing.T) {
	c := replay(t, api)
	before := c.all()
	writer := start(t)

	// Without reports, no object changes except these.
	c.eventually(func() bool { return len(c.finalizers()) == 0 }, "finalizers of upstream Akri's agents are left")
	c.eventually(func() bool { return c.get(stale) == nil }, "the Instance of a removed node is left")
	delete(before, stale)
	requireSame(t, before, c.all())

	nodes := newReporters(t, writer, c)
	c.eventually(func() bool { return len(c.identified()) == 3 }, "the nodes' reports are not merged")
	nodes.report("node-a", "akri-onvif", device("akri-onvif", "camera", true), device("akri-onvif", "http://192.168.1.23/onvif/device_service-9c5a0e2d", true))
	c.eventually(func() bool { return c.get("Pod/node-a-"+name("akri-onvif", "camera", true)+"-pod") != nil }, "the other camera has no broker")
	requireSame(t, before, c.all())

	// Adopted objects are handled like all others.
	c.delete("Pod/node-a-akri-onvif-a7e5b8-pod")
	c.eventually(func() bool { return c.get("Pod/node-a-akri-onvif-a7e5b8-pod") != nil }, "the deleted broker is not replaced")
	c.delete("Configuration/akri-debug-echo")
	require.Nil(t, c.get("Configuration/akri-debug-echo"))
}

// requireSame compares the objects. Brokers, Services and Jobs must not have been written at all.
func requireSame(t *testing.T, before, after map[string]*unstructured.Unstructured) {
	t.Helper()
	for key, old := range before {
		current := after[key]
		require.NotNil(t, current, key)
		require.Equal(t, old.GetUID(), current.GetUID(), key)
		switch old.GetKind() {
		case "Configuration":
			require.Equal(t, old.Object["spec"], current.Object["spec"], key)
		case "Instance":
			requireSameInstance(t, old, current)
		default:
			require.Equal(t, old, current, key)
		}
	}
}

// requireSameInstance ignores free slots, which the instance-writer adds to deviceUsage.
func requireSameInstance(t *testing.T, old, current *unstructured.Unstructured) {
	t.Helper()
	slots := func(instance *unstructured.Unstructured) map[string]string {
		usage, _, err := unstructured.NestedStringMap(instance.Object, "spec", "deviceUsage")
		require.NoError(t, err)
		return usage
	}
	held := func(instance *unstructured.Unstructured) map[string]string {
		usage := slots(instance)
		maps.DeleteFunc(usage, func(_, holder string) bool { return holder == "" })
		return usage
	}
	rest := func(instance *unstructured.Unstructured) any {
		spec := maps.Clone(instance.Object["spec"].(map[string]any))
		delete(spec, "deviceUsage")
		return spec
	}
	require.Equal(t, held(old), held(current), old.GetName())
	require.Len(t, slots(current), 2, old.GetName())
	require.Equal(t, rest(old), rest(current), old.GetName())
	require.Equal(t, old.GetOwnerReferences(), current.GetOwnerReferences(), old.GetName())
}

// start starts instance-writer and broker-controller.
func start(t *testing.T) *process.Writer {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	writer, err := process.StartWriter(ctx, api, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, writer.Stop()) })
	controller, err := process.Start(ctx, api, "broker-controller", "--leader-elect=false", "--admin-address=", "--log-level=warn")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, controller.Stop()) })
	return writer
}

// reporters are fake discovery-operators with one stream per node.
type reporters struct {
	*testing.T
	cluster *cluster
	streams map[string]instancev1.InstanceService_ReportDevicesClient
}

// newReporters connects both nodes and reports the devices that upstream Akri had discovered.
func newReporters(t *testing.T, writer *process.Writer, c *cluster) reporters {
	t.Helper()
	r := reporters{t, c, map[string]instancev1.InstanceService_ReportDevicesClient{}}
	for _, node := range []string{"node-a", "node-b"} {
		connection, err := writer.Dial(t.Context(), identitytest.DiscoveryOperator, node)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, connection.Close()) })
		r.streams[node], err = instancev1.NewInstanceServiceClient(connection).ReportDevices(t.Context(), grpc.WaitForReady(true))
		require.NoError(t, err)
		r.report(node, "akri-onvif", device("akri-onvif", "http://192.168.1.23/onvif/device_service-9c5a0e2d", true))
	}
	r.report("node-a", "akri-udev")
	r.report("node-b", "akri-udev", device("akri-udev", "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", false))
	r.report("node-a", "akri-debug-echo", device("akri-debug-echo", "foo0", true))
	return r
}

// report sends all devices of a Configuration on a node and waits for the response.
func (r reporters) report(node, configuration string, devices ...*discoveryv1.Device) {
	r.Helper()
	owner := r.cluster.get("Configuration/" + configuration)
	for _, device := range devices {
		// The properties are those of the existing Instance.
		if existing := r.cluster.get("Instance/" + device.GetInstance()); existing != nil {
			properties, _, err := unstructured.NestedStringMap(existing.Object, "spec", "brokerProperties")
			require.NoError(r, err)
			device.Properties = properties
		}
	}
	require.NoError(r, r.streams[node].Send(&instancev1.ReportDevicesRequest{
		Node: node, Revision: 1, Namespace: namespace, Configuration: configuration, ConfigurationUid: string(owner.GetUID()),
		ConfigurationGeneration: owner.GetGeneration(), Complete: true, Devices: devices,
	}))
	response, err := r.streams[node].Recv()
	require.NoError(r, err)
	require.Empty(r, response.GetRefusals())
}

// device returns a device. A local device is on node-b.
func device(configuration, id string, shared bool) *discoveryv1.Device {
	return &discoveryv1.Device{Instance: name(configuration, id, shared), Id: id, Shared: shared}
}

func name(configuration, id string, shared bool) string {
	return akriv0.InstanceName(configuration, akriv0.Digest(id, "node-b", shared))
}

// finalizers returns the finalizers of all objects.
func (c *cluster) finalizers() (left []string) {
	for _, object := range c.all() {
		left = append(left, object.GetFinalizers()...)
	}
	return left
}

// identified returns the names of Instances with a recorded device id.
func (c *cluster) identified() []string {
	var names []string
	for key, object := range c.all() {
		if object.GetAnnotations()[akriv0.DeviceIDAnnotation] != "" {
			names = append(names, key)
		}
	}
	return slices.Sorted(slices.Values(names))
}

func (c *cluster) delete(key string) {
	c.Helper()
	object := c.get(key)
	require.NotNil(c, object, key)
	err := c.resource(object).Delete(c.Context(), object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	require.True(c, err == nil || apierrors.IsNotFound(err), "%v", err)
}

func (c *cluster) eventually(condition func() bool, failure string) {
	c.Helper()
	require.Eventually(c, condition, timeout, pollInterval, failure)
}
