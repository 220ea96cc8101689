package desired_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/desired"
)

var update = flag.Bool("update", false, "write the golden files")

var owner = metav1.OwnerReference{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClass", Name: "akri.sh", UID: "uid"}

var all = desired.Features{ConsumableCapacity: true, ExtendedResources: true, Taints: true}

func golden(t *testing.T, name string, object any) {
	t.Helper()
	got, err := yaml.Marshal(object)
	require.NoError(t, err)
	path := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// slice returns the only slice of the device's pool, or nil.
func slice(f desired.Features, device desired.Device) *resourcev1.ResourceSlice {
	changes := f.Changes(f.Pool(device.Instance), nil, f.Offers(device), owner)
	if len(changes) == 0 {
		return nil
	}
	return changes[0].Wanted
}

func device(shared bool, nodes ...*corev1.Node) desired.Device {
	device := desired.Device{
		Configuration: &akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				akriv0.PropertiesAnnotation: "SERIAL, missing,LONG,no-name,shared",
			}},
			Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "udev"}},
		},
		Instance: &akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "cameras-8120fe"},
			Spec: akriv0.InstanceSpec{
				ConfigurationName: "cameras", Capacity: 3, Shared: shared,
				BrokerProperties: map[string]string{
					"SERIAL": "X1", "LONG": strings.Repeat("x", 65), "no-name": "x", "shared": "x", "PASSWORD": "secret",
				},
			},
		},
	}
	for _, node := range nodes {
		device.Instance.Spec.Nodes = append(device.Instance.Spec.Nodes, node.Name)
		if desired.UsesDRA(node) {
			device.Nodes = append(device.Nodes, node)
		}
	}
	return device
}

func node(name string, labels ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: "host-" + name}}}
	for _, value := range labels {
		node.Labels[akriv0.ResourcesLabel] = value
	}
	return node
}

func TestDesiredObjects(t *testing.T) {
	golden(t, "shared-slice", slice(all, device(true, node("b"), node("a"), node("c", akriv0.ResourcesDevicePlugin))))
	golden(t, "local-slice", slice(all, device(false, node("a", "dra"))))
	golden(t, "configuration-class", all.ConfigurationClass("cameras", owner))
	golden(t, "instance-class", all.InstanceClass("cameras-8120fe", owner))
}

// Without optional features each slot is a device, and classes have no extended resource.
func TestNoFeatures(t *testing.T) {
	none, device := desired.Features{}, device(true, node("a"))
	device.Instance.Spec.DeviceUsage = map[string]string{"cameras-8120fe-0": "D:uid:a", "cameras-8120fe-1": "a"}
	golden(t, "slots-slice", slice(none, device))
	golden(t, "plain-class", none.ConfigurationClass("cameras", owner))
	require.False(t, none.EvictsPods(&akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{akriv0.LostDevicesAnnotation: akriv0.EvictPods}},
	}))

	device.Instance.Spec.Capacity = 200
	for _, f := range []desired.Features{none, {Taints: true}} {
		count := 0
		for _, change := range f.Changes(f.Pool(device.Instance), nil, f.Offers(device), owner) {
			count += len(change.Wanted.Spec.Devices)
		}
		require.Equal(t, 199, count, "one slot is held by a device plugin")
	}
	device.Instance.Name = strings.Repeat("a", 62)
	require.Nil(t, slice(none, device), "the names of the slots are too long")
	require.NotNil(t, slice(all, device))
}

// Claims get the slots that device plugins do not hold.
func TestCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		usage    map[string]string
		expected int64
	}{
		"all free":                     {nil, 3},
		"held by claims":               {map[string]string{"cameras-8120fe-0": "D:uid:a", "cameras-8120fe-1": "D:other:b"}, 3},
		"held by device plugins":       {map[string]string{"cameras-8120fe-0": "a", "cameras-8120fe-1": "C:1:b"}, 1},
		"malformed":                    {map[string]string{"cameras-8120fe-2": "x:y"}, 2},
		"above a lowered capacity":     {map[string]string{"cameras-8120fe-3": "a"}, 3},
		"all held by device plugins":   {map[string]string{"cameras-8120fe-0": "a", "cameras-8120fe-1": "b", "cameras-8120fe-2": "C:0:a"}, 0},
		"the keys of another Instance": {map[string]string{"cameras-8120ff-0": "a"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			device := device(true, node("a"))
			device.Instance.Spec.DeviceUsage = c.usage
			published := slice(all, device)
			if c.expected == 0 {
				require.Nil(t, published)
				return
			}
			slots := published.Spec.Devices[0].Capacity["slots"].Value
			require.Equal(t, c.expected, slots.Value())
		})
	}
}

// Several nodes can see a shared device at different places. A property cannot replace another
// attribute.
func TestAttributesOfPCIDevices(t *testing.T) {
	d := device(false, node("a"))
	d.Instance.Spec.BrokerProperties["UDEV_DEVPATH"] = "/devices/pci0000:00/0000:00:1d.0/0000:02:00.0"
	d.Instance.Spec.BrokerProperties["shared"] = "x"
	d.Configuration.Annotations[akriv0.PropertiesAnnotation] += ",shared"
	for _, shared := range []bool{false, true} {
		d.Instance.Spec.Shared = shared
		found := slice(all, d).Spec.Devices[0].Attributes
		require.Equal(t, shared, *found["shared"].BoolValue)
		if shared {
			require.NotContains(t, found, resourcev1.QualifiedName("resource.kubernetes.io/pcieRoot"))
			require.NotContains(t, found, resourcev1.QualifiedName("resource.kubernetes.io/pciBusID"))
			continue
		}
		require.Equal(t, "pci0000:00", *found["resource.kubernetes.io/pcieRoot"].StringValue)
		require.Equal(t, "0000:02:00.0", *found["resource.kubernetes.io/pciBusID"].StringValue)
	}
}

func TestNoSlice(t *testing.T) {
	long := device(true, node("a"))
	long.Instance.Name = strings.Repeat("a", 64)
	for name, device := range map[string]desired.Device{
		"no node exists":                 device(true),
		"all nodes use device plugins":   device(true, node("a", akriv0.ResourcesDevicePlugin)),
		"the name is too long for a Pod": long,
		"a local device of another form": device(false, node("a", akriv0.ResourcesDevicePlugin)),
	} {
		require.Nil(t, slice(all, device), name)
	}
	require.Nil(t, all.ConfigurationClass(strings.Repeat("a", 64), owner))
}
