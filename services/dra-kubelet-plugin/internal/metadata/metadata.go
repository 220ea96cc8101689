// Package metadata describes the devices of a ResourceClaim for programs in its containers, in the
// form of Kubernetes' device metadata. Environment variables do not suffice for programs that are
// not started by the container runtime, or that know only the names in the spec of their Pod.
// https://github.com/kubernetes/enhancements/issues/5304
package metadata

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/install"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/attributes"
	"akri.sh/libs/node"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// versions of a file, in the order of the file.
var versions = []schema.GroupVersion{v1beta1.SchemeGroupVersion, v1alpha1.SchemeGroupVersion}

var encoders = newEncoders()

func newEncoders() (all []runtime.Encoder) {
	codecs := serializer.NewCodecFactory(install.NewScheme())
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	for _, version := range versions {
		all = append(all, codecs.EncoderForVersion(info.Serializer, version))
	}
	return all
}

// Device is a device that is allocated to a claim.
type Device struct {
	*instancev1.AllocatedDevice
	node.Device
}

// File is the metadata of a request.
type File struct {
	// Path is that in containers.
	Path    string
	Content []byte
}

// Files returns the metadata of the requests of a claim. podClaimName is the name of the claim in
// its Pod, or empty if it was not created from a ResourceClaimTemplate.
func Files(claim *drav1.Claim, podClaimName string, devices []Device) (map[string]File, error) {
	byRequest := map[string][]metadata.Device{}
	for _, device := range devices {
		byRequest[device.GetRequest()] = append(byRequest[device.GetRequest()], describe(device))
	}

	files := map[string]File{}
	for _, name := range slices.Sorted(maps.Keys(byRequest)) {
		content, err := encode(&metadata.DeviceMetadata{
			ObjectMeta:   metav1.ObjectMeta{Namespace: claim.GetNamespace(), Name: claim.GetName(), UID: types.UID(claim.GetUid()), Generation: 1},
			PodClaimName: optional(podClaimName),
			Requests:     []metadata.DeviceMetadataRequest{{Name: name, Devices: byRequest[name]}},
		})
		if err != nil {
			return nil, err
		}
		request, _, _ := strings.Cut(name, "/") // of a request with alternatives
		path := metadata.ResourceClaimFilePath(akriv0.Driver, claim.GetName(), request)
		if podClaimName != "" {
			path = metadata.ResourceClaimTemplateFilePath(akriv0.Driver, podClaimName, request)
		}
		files[request] = File{Path: path, Content: content}
	}
	return files, nil
}

// describe returns a device with the properties that its containers get as environment variables,
// as far as they can be attributes.
func describe(device Device) metadata.Device {
	properties := device.Spec.GetProperties()
	values := attributes.OfProperties(properties)
	maps.Copy(values, attributes.Standard(properties))
	maps.Copy(values, map[string]string{
		attributes.Namespace: device.Instance.GetNamespace(), attributes.Configuration: device.Instance.GetConfiguration(),
		attributes.Instance: device.Instance.GetName(),
	})

	described := metadata.Device{
		Driver: akriv0.Driver, Pool: device.GetPool(), Name: device.GetDevice(),
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{},
	}
	for name, value := range values {
		if attributes.IsValue(value) {
			described.Attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{StringValue: &value}
		}
	}
	described.Attributes[attributes.Shared] = resourcev1.DeviceAttribute{BoolValue: new(device.Instance.GetShared())}
	return described
}

// encode returns the object in each version, one after the other.
func encode(object *metadata.DeviceMetadata) ([]byte, error) {
	var content bytes.Buffer
	for _, encoder := range encoders {
		if err := encoder.Encode(object, &content); err != nil {
			return nil, fmt.Errorf("encode device metadata: %w", err)
		}
	}
	return content.Bytes(), nil
}

func optional(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}
