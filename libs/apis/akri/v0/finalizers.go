package v0

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WithoutAgentFinalizers returns the finalizers without those that upstream Akri's agent sets. The
// agent's finalizer is the name of its node. All other finalizers contain a domain, except the two
// of the garbage collector.
func WithoutAgentFinalizers(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(name string) bool {
		return !strings.Contains(name, "/") && name != metav1.FinalizerDeleteDependents && name != metav1.FinalizerOrphanDependents
	})
}

// AgentFinalizersPatch returns a merge patch that removes the finalizers of upstream Akri's agent,
// or nil if there are none. If the object has a resourceVersion, the patch fails after a concurrent
// change.
func AgentFinalizersPatch(object metav1.Object) []byte {
	kept := WithoutAgentFinalizers(object.GetFinalizers())
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	metadata := map[string]any{"finalizers": kept}
	if version := object.GetResourceVersion(); version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // strings always encode
	}
	return patch
}
