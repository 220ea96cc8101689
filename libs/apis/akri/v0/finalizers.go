package v0

import (
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
