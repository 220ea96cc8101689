// Package adoption_test checks that what Akri 0.13 left on a cluster is taken over as it is.
package adoption_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/programs"
)

var api *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &api) }

const (
	within = 30 * time.Second
	poll   = 25 * time.Millisecond
	gone   = "Instance/akri-udev-70f45b"
)

func TestWhatAkriLeftIsTakenOverAsItIs(t *testing.T) {
	c := record(t)
	before := c.all()
	address := start(t)

	// Nobody reports yet: what nobody can say is not taken for an answer.
	c.eventually(func() bool { return len(c.finalizers()) == 0 }, "the finalizers of Akri's agents to go")
	c.eventually(func() bool { return c.get(gone) == nil }, "an Instance that waited for a node that is gone")
	delete(before, gone)
	requireSame(t, before, c.all())

	nodes := report(t, address, c)
	c.eventually(func() bool { return len(c.identified()) == 3 }, "the nodes' reports to be merged")
	nodes.see("node-a", "akri-onvif", device("akri-onvif", "camera", true), device("akri-onvif", "http://192.168.1.23/onvif/device_service-9c5a0e2d", true))
	c.eventually(func() bool { return c.get("Pod/node-a-"+name("akri-onvif", "camera", true)+"-pod") != nil }, "the broker of another camera")
	requireSame(t, before, c.all())

	// From here on it is as if Akri had never been there.
	c.delete("Pod/node-a-akri-onvif-a7e5b8-pod")
	c.eventually(func() bool { return c.get("Pod/node-a-akri-onvif-a7e5b8-pod") != nil }, "another broker for the one that was deleted")
	c.delete("Configuration/akri-debug-echo")
	require.Nil(t, c.get("Configuration/akri-debug-echo"))
}

// requireSame compares what there was with what there is: brokers, Services and Jobs were not even written.
func requireSame(t *testing.T, before, after map[string]*unstructured.Unstructured) {
	t.Helper()
	for key, was := range before {
		is := after[key]
		require.NotNil(t, is, key)
		require.Equal(t, was.GetUID(), is.GetUID(), key)
		switch was.GetKind() {
		case "Configuration":
			require.Equal(t, was.Object["spec"], is.Object["spec"], key)
		case "Instance":
			requireSameInstance(t, was, is)
		default:
			require.Equal(t, was, is, key)
		}
	}
}

// requireSameInstance allows for free slots being written down.
func requireSameInstance(t *testing.T, was, is *unstructured.Unstructured) {
	t.Helper()
	slots := func(of *unstructured.Unstructured) map[string]string {
		usage, _, err := unstructured.NestedStringMap(of.Object, "spec", "deviceUsage")
		require.NoError(t, err)
		return usage
	}
	held := func(of *unstructured.Unstructured) map[string]string {
		usage := slots(of)
		maps.DeleteFunc(usage, func(_, holder string) bool { return holder == "" })
		return usage
	}
	rest := func(of *unstructured.Unstructured) any {
		spec := maps.Clone(of.Object["spec"].(map[string]any))
		delete(spec, "deviceUsage")
		return spec
	}
	require.Equal(t, held(was), held(is), was.GetName())
	require.Len(t, slots(is), 2, was.GetName())
	require.Equal(t, rest(was), rest(is), was.GetName())
	require.Equal(t, was.GetOwnerReferences(), is.GetOwnerReferences(), was.GetName())
}

// start starts the two services that write, and returns where instance-writer answers.
func start(t *testing.T) (address string) {
	t.Helper()
	address, err := programs.FreeAddress(t.Context())
	require.NoError(t, err)
	run(t, "instance-writer", "--address", address)
	run(t, "broker-controller", "--leader-elect=false")
	return address
}

func run(t *testing.T, name string, flags ...string) {
	t.Helper()
	program, err := programs.Start(context.WithoutCancel(t.Context()), api, name, append(flags, "--admin-address=", "--log-level=warn")...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, program.Stop()) })
}

// reporters are the nodes' discovery-operators: one stream each.
type reporters struct {
	*testing.T
	cluster *cluster
	streams map[string]instancev1.InstanceService_ReportDevicesClient
}

// report has both nodes report what they saw under Akri.
func report(t *testing.T, address string, c *cluster) reporters {
	t.Helper()
	connection, err := rpc.Dial(address, prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, connection.Close()) })
	r := reporters{t, c, map[string]instancev1.InstanceService_ReportDevicesClient{}}
	for _, node := range []string{"node-a", "node-b"} {
		r.streams[node], err = instancev1.NewInstanceServiceClient(connection).ReportDevices(t.Context(), grpc.WaitForReady(true))
		require.NoError(t, err)
		r.see(node, "akri-onvif", device("akri-onvif", "http://192.168.1.23/onvif/device_service-9c5a0e2d", true))
	}
	r.see("node-a", "akri-udev")
	r.see("node-b", "akri-udev", device("akri-udev", "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", false))
	r.see("node-a", "akri-debug-echo", device("akri-debug-echo", "foo0", true))
	return r
}

// see reports all that the node sees of a Configuration, and waits for the answer.
func (r reporters) see(node, configuration string, devices ...*instancev1.Device) {
	r.Helper()
	of := r.cluster.get("Configuration/" + configuration)
	for _, device := range devices {
		// The properties are those that Akri's handlers found.
		if there := r.cluster.get("Instance/" + device.GetInstance()); there != nil {
			properties, _, err := unstructured.NestedStringMap(there.Object, "spec", "brokerProperties")
			require.NoError(r, err)
			device.Properties = properties
		}
	}
	require.NoError(r, r.streams[node].Send(&instancev1.ReportDevicesRequest{
		Node: node, Revision: 1, Namespace: namespace, Configuration: configuration, ConfigurationUid: string(of.GetUID()),
		ConfigurationGeneration: of.GetGeneration(), Complete: true, Devices: devices,
	}))
	answer, err := r.streams[node].Recv()
	require.NoError(r, err)
	require.Empty(r, answer.GetRefusals())
}

// device of the node that sees a local one: node-b.
func device(configuration, id string, shared bool) *instancev1.Device {
	return &instancev1.Device{Instance: name(configuration, id, shared), Id: id, Shared: shared}
}

func name(configuration, id string, shared bool) string {
	return akriv0.InstanceName(configuration, akriv0.Digest(id, "node-b", shared))
}

// finalizers that are left anywhere.
func (c *cluster) finalizers() (left []string) {
	for _, object := range c.all() {
		left = append(left, object.GetFinalizers()...)
	}
	return left
}

// identified are the Instances of which it is known which device they are.
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

func (c *cluster) eventually(condition func() bool, what string) {
	c.Helper()
	require.Eventually(c, condition, within, poll, what)
}
