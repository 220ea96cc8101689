package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Labels and annotations of the objects made here.
const (
	LabelApp           = "app"
	LabelController    = "controller"
	LabelConfiguration = akriv0.Group + "/configuration"
	LabelInstance      = akriv0.Group + "/instance"
	LabelTargetNode    = akriv0.Group + "/target-node"

	// AnnotationSpecHash is the Hash of the user's spec that an object was made from. An object
	// without it was made by Akri 0.13 and is left as it is.
	AnnotationSpecHash = akriv0.Group + "/spec-hash"
	// AnnotationAttempt of a broker Pod counts the Pods before it that ended soon after they were
	// made. It lives on the Pod so that back-off survives the controller.
	AnnotationAttempt = akriv0.Group + "/attempt"
)

// OwnLabels of broker Pods. What the user says of them has no effect.
var OwnLabels = []string{LabelApp, LabelController, LabelConfiguration, LabelInstance, LabelTargetNode}

const (
	maxPodName   = 253 // a DNS subdomain
	maxLabel     = 63  // a label value; a Service's name; a Job's name, which becomes a label of its Pods
	hashedDigits = 8
)

// PodName is `<node>-<instance>-pod` for a shared device and `<instance>-pod` for a local one.
func PodName(instance *akriv0.Instance, node string) string {
	base := dashed(instance.Name)
	if instance.Spec.Shared {
		base = node + "-" + base
	}
	return named(base, "-pod", maxPodName)
}

// JobName is `<instance>-<generation of the Configuration>-job`.
func JobName(instance string, generation int64) string {
	return named(dashed(instance), fmt.Sprintf("-%d-job", generation), maxLabel)
}

// ServiceName is `<instance or configuration>-svc`.
func ServiceName(of string) string {
	return named(dashed(of), "-svc", maxLabel)
}

// LabelValue is the value itself, shortened where a label cannot hold it.
func LabelValue(value string) string {
	return named(value, "", maxLabel)
}

// Hash identifies a user's spec. It is taken of what the user wrote, not of the object rendered
// from it, so that a controller that renders differently does not replace every broker.
func Hash(spec any) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // API types are made to be encoded
	}
	return digest(text, 16)
}

func dashed(name string) string { return strings.ReplaceAll(name, ".", "-") }

// named is base+suffix; a base that is too long ends early, in a hash of the whole of it.
func named(base, suffix string, limit int) string {
	if len(base)+len(suffix) <= limit {
		return base + suffix
	}
	start := strings.TrimRight(base[:limit-len(suffix)-hashedDigits-1], "-._")
	return start + "-" + digest([]byte(base), hashedDigits) + suffix
}

func digest(text []byte, digits int) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:digits]
}
