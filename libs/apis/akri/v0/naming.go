package v0

import (
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/crypto/blake2b"
)

const digestBytes = 3

// DeviceIDAnnotation of an Instance holds the id that the handler gave the device, so that two ids
// with one digest can be told apart.
const DeviceIDAnnotation = "akri.sh/device-id"

// Digest is the part of an Instance's name that stands for the device: six hex digits of a BLAKE2b
// hash with an output of three bytes (not a truncated longer one) over the id; for local devices
// over the id followed by the node's name.
func Digest(id, node string, shared bool) string {
	if !shared {
		id += node
	}
	h, err := blake2b.New(digestBytes, nil)
	if err != nil {
		panic(err) // only possible for an output length or key that BLAKE2b does not have
	}
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}

// InstanceName is `<configuration>-<digest>`, with `.` and `/` replaced as Akri does.
func InstanceName(configuration, digest string) string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(configuration + "-" + digest)
}

// CDIName is `akri.sh/<configuration>=<digest>`.
func CDIName(configuration, digest string) string {
	return fmt.Sprintf("%s/%s=%s", Group, configuration, digest)
}

// InstanceDigest is the digest in an Instance's name.
func InstanceDigest(instance string) string {
	return instance[strings.LastIndexByte(instance, '-')+1:]
}

// ResourceName is the extended resource of an Instance or a Configuration, `akri.sh/<name>`.
func ResourceName(name string) string {
	return Group + "/" + name
}
