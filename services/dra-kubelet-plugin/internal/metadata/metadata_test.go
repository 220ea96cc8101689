package metadata_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8smetadata "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"akri.sh/libs/node"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/dra-kubelet-plugin/internal/metadata"
)

const path = "/devices/pci0000:00/0000:00:1f.2"

func device(request, name string, properties map[string]string) metadata.Device {
	return metadata.Device{
		AllocatedDevice: &instancev1.AllocatedDevice{Request: request, Pool: "factory/" + name, Device: name},
		Device: node.Device{
			Instance: &instancev1.Instance{Namespace: "factory", Name: name, Configuration: "cameras"},
			Spec:     &discoveryv1.Device{Properties: properties},
		},
	}
}

// The library that Kubernetes has for programs in containers reads what it gets for a claim of a
// template, with a request that has alternatives, and for a claim that a Pod names.
func TestFiles(t *testing.T) {
	claim := &drav1.Claim{Namespace: "factory", Name: "viewer-camera-x7k2p", Uid: "1b4e28ba-2fa1-4d4b-883f-0016d3cca427"}
	devices := []metadata.Device{
		device("front/preferred", "cameras-8120fe", map[string]string{"SERIAL": "X1", "UDEV_DEVPATH": path, "shared": "x"}),
		device("back", "cameras-a19705", nil),
		device("back", "cameras-f64130", nil),
	}
	files, err := metadata.Files(claim, "camera", devices)
	require.NoError(t, err)
	require.Len(t, files, 2)
	front := files["front"]
	require.Equal(t, "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/camera/front/akri.sh-metadata.json", front.Path)
	read := decode(t, front.Content)
	require.Equal(t, []string{"factory", claim.Name, claim.Uid, "camera"}, []string{read.Namespace, read.Name, string(read.UID), *read.PodClaimName})
	require.Len(t, read.Requests, 1)
	require.Equal(t, "front/preferred", read.Requests[0].Name)
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	require.Equal(t, []k8smetadata.Device{{
		Driver: "akri.sh", Pool: "factory/cameras-8120fe", Name: "cameras-8120fe",
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"namespace": text("factory"), "configuration": text("cameras"), "instance": text("cameras-8120fe"),
			"SERIAL": text("X1"), "UDEV_DEVPATH": text(path), "shared": {BoolValue: new(false)},
			"resource.kubernetes.io/pcieRoot": text("pci0000:00"), "resource.kubernetes.io/pciBusID": text("0000:00:1f.2"),
		},
	}}, read.Requests[0].Devices)
	require.Len(t, decode(t, files["back"].Content).Requests[0].Devices, 2)

	named, err := metadata.Files(claim, "", devices[1:])
	require.NoError(t, err)
	require.Equal(t, "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/"+claim.Name+"/back/akri.sh-metadata.json", named["back"].Path)
	require.Nil(t, decode(t, named["back"].Content).PodClaimName)
}

// Whatever the properties of a device are, each version of its metadata is valid.
func TestRandomProperties(t *testing.T) {
	for range 500 {
		properties := map[string]string{}
		for range rand.IntN(60) {
			properties[randomText(40)] = randomText(80)
		}
		files, err := metadata.Files(&drav1.Claim{Namespace: "factory", Name: "c", Uid: "1b4e28ba-2fa1-4d4b-883f-0016d3cca427"}, "", []metadata.Device{device("r", "cameras-8120fe", properties)})
		require.NoError(t, err)
		attributes := decode(t, files["r"].Content).Requests[0].Devices[0].Attributes
		for name, value := range properties {
			attribute, exists := attributes[resourcev1.QualifiedName(name)]
			require.True(t, !exists || *attribute.StringValue == value, "%q: %q", name, value)
		}
	}
}

func randomText(longest int) string {
	const letters = "abzAZ09__-./:é \x00"
	runes := []rune(letters)
	text := make([]rune, 1+rand.IntN(longest))
	plain := rand.IntN(2) == 0
	for i := range text {
		if text[i] = runes[rand.IntN(len(runes))]; plain {
			text[i] = runes[rand.IntN(8)]
		}
	}
	return string(text)
}

// decode returns the first version of the metadata. It requires that each version is valid, and
// that all have the same content.
func decode(t *testing.T, content []byte) *k8smetadata.DeviceMetadata {
	t.Helper()
	var all []*k8smetadata.DeviceMetadata
	var versions []string
	decoder := json.NewDecoder(bytes.NewReader(content))
	for decoder.More() {
		var object json.RawMessage
		require.NoError(t, decoder.Decode(&object))
		read := &k8smetadata.DeviceMetadata{}
		var invalid error
		var kind schema.GroupVersionKind
		require.NoError(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(object)), runtime.Object(read),
			devicemetadata.DecodeMetadataWithValidationResult(&invalid), devicemetadata.DecodeMetadataStoreGVKResult(&kind)))
		require.NoError(t, invalid, "%s", object)
		all, versions = append(all, read), append(versions, kind.String())
	}
	require.Equal(t, []string{
		"metadata.resource.k8s.io/v1beta1, Kind=DeviceMetadata", "metadata.resource.k8s.io/v1alpha1, Kind=DeviceMetadata",
	}, versions, string(content))
	require.Equal(t, all[0], all[1])
	return all[0]
}
