package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Labels and annotations of rendered objects.
const (
	LabelApp           = "app"
	LabelController    = "controller"
	LabelConfiguration = akriv0.Group + "/configuration"
	LabelInstance      = akriv0.Group + "/instance"
	LabelTargetNode    = akriv0.Group + "/target-node"

	// AnnotationSpecHash is the Hash of the user's spec. Objects of upstream Akri do not have it
	// and are never outdated.
	AnnotationSpecHash = akriv0.Group + "/spec-hash"
	// AnnotationAttempt counts the previous Pods that ended soon after their creation. It is stored
	// in the Pod so that the backoff survives a restart of the controller.
	AnnotationAttempt = akriv0.Group + "/attempt"
)

// ReservedLabels are the labels of broker Pods that users cannot set.
var ReservedLabels = []string{LabelApp, LabelController, LabelConfiguration, LabelInstance, LabelTargetNode}

const (
	maxPodName = 253 // DNS subdomain
	maxLabel   = 63  // label values, Service names, and Job names because Kubernetes copies them to a label
	hashDigits = 8   // of shortened names
)

// PodName returns `<node>-<instance>-pod` for a shared device and `<instance>-pod` for a local
// device.
func PodName(instance *akriv0.Instance, node string) string {
	base := dashed(instance.Name)
	if instance.Spec.Shared {
		base = node + "-" + base
	}
	return shorten(base, "-pod", maxPodName)
}

// JobName returns `<instance>-<generation of the Configuration>-job`.
func JobName(instance string, generation int64) string {
	return shorten(dashed(instance), fmt.Sprintf("-%d-job", generation), maxLabel)
}

// ServiceName returns `<owner>-svc`. The owner is an Instance or a Configuration.
func ServiceName(owner string) string {
	return shorten(dashed(owner), "-svc", maxLabel)
}

// LabelValue returns the value, shortened if it is too long for a label.
func LabelValue(value string) string {
	return shorten(value, "", maxLabel)
}

// Hash identifies a user's spec. It covers the spec and not the rendered object, so a new version
// of the controller that renders differently does not replace all brokers.
func Hash(spec any) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // API types always encode
	}
	return digest(text, 16)
}

func dashed(name string) string { return strings.ReplaceAll(name, ".", "-") }

// shorten returns base+suffix. If that exceeds the limit, base is cut and ends with a hash of the
// whole base.
func shorten(base, suffix string, limit int) string {
	if len(base)+len(suffix) <= limit {
		return base + suffix
	}
	start := strings.TrimRight(base[:limit-len(suffix)-hashDigits-1], "-._")
	return start + "-" + digest([]byte(base), hashDigits) + suffix
}

func digest(text []byte, digits int) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:digits]
}
