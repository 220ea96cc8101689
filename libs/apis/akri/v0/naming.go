package v0

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/crypto/blake2b"
	"k8s.io/apimachinery/pkg/util/validation"
)

// digestPattern matches the digest in the name of an Instance: six digits, or more if another
// device of the Configuration has the short name. The `x` keeps the name apart from those of
// Configurations, which may end with a MAC address or another number.
var digestPattern = regexp.MustCompile(`^([0-9a-f]{6})(x[0-9a-f]{6})?$`)

// MaxResourceName is the maximum length of the name of an Instance or a Configuration, because the
// API server refuses longer names after `akri.sh/` in the resources of a Pod.
const MaxResourceName = validation.LabelValueMaxLength

// DeviceIDAnnotation holds the device id that the handler assigned. It distinguishes device ids
// with the same digest.
const DeviceIDAnnotation = "akri.sh/device-id"

// DifferingNodesAnnotation lists the nodes of an Instance, separated by commas, whose reports have
// other properties of the device than the Instance.
const DifferingNodesAnnotation = "akri.sh/differing-nodes"

// DevicesAnnotation of an Event about devices lists the Instances that its message names, separated
// by commas.
const DevicesAnnotation = "akri.sh/devices"

// ConfigurationLabel of an Instance is the name of its Configuration. An Instance whose
// Configuration has a name that is no label value has no such label.
const ConfigurationLabel = "akri.sh/configuration"

// SetConfigurationLabel sets the ConfigurationLabel of the Instance to its configurationName.
func (i *Instance) SetConfigurationLabel() {
	if len(validation.IsValidLabelValue(i.Spec.ConfigurationName)) > 0 {
		return
	}
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	i.Labels[ConfigurationLabel] = i.Spec.ConfigurationName
}

// Digest returns the part of an Instance's name that identifies the device: the BLAKE2b hash of the
// device id, with an output size of three bytes (a truncated longer hash differs), as six hex
// digits. For local devices the node name is appended to the id.
func Digest(id, node string, shared bool) string {
	return hash(id, node, shared, 3)
}

// LongDigest returns the Digest, `x`, and the last six digits of the hash with an output size of
// six bytes. It is part of the Instance's name if another device of the Configuration has the name
// with the Digest.
func LongDigest(id, node string, shared bool) string {
	return Digest(id, node, shared) + "x" + hash(id, node, shared, 6)[6:]
}

func hash(id, node string, shared bool, bytes int) string {
	if !shared {
		id += node
	}
	h, err := blake2b.New(bytes, nil)
	if err != nil {
		panic(err) // only an invalid output size or key
	}
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}

// InstanceName returns `<configuration>-<digest>` with `.` and `/` replaced by `-`, as upstream
// Akri does.
func InstanceName(configuration, digest string) string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(configuration + "-" + digest)
}

// CDIName returns `akri.sh/<configuration>=<digest>`.
func CDIName(configuration, digest string) string {
	return fmt.Sprintf("%s/%s=%s", Group, configuration, digest)
}

// InstanceDigest returns the digest in the name of an Instance.
func InstanceDigest(instance string) string {
	return instance[strings.LastIndexByte(instance, '-')+1:]
}

// ShortInstanceName returns the name of an Instance with the digest cut to six digits. All devices
// of a Configuration with the same Digest have the same short name.
func ShortInstanceName(instance string) string {
	if match := digestPattern.FindStringSubmatch(InstanceDigest(instance)); match != nil {
		return strings.TrimSuffix(instance, match[2])
	}
	return instance
}

// InstancePrefix returns the name without the digest, if it is one that an Instance can have.
func InstancePrefix(name string) string {
	digest := InstanceDigest(name)
	if len(digest) == len(name) || !digestPattern.MatchString(digest) {
		return ""
	}
	return strings.TrimSuffix(name, digest)
}

// ResourceName returns the extended resource of an Instance or a Configuration, `akri.sh/<name>`.
func ResourceName(name string) string {
	return Group + "/" + name
}
