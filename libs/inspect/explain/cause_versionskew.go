package explain

import (
	"fmt"
	"slices"
	"strings"
)

// VersionSkew means that Pods of Akri run different versions.
const VersionSkew CauseID = "VersionSkew"

func init() { register(rule{VersionSkew, LinkServices, 4, versionSkew}) }

func versionSkew(t target) []Cause {
	versions := Versions(t.services)
	if len(versions) < 2 {
		return nil
	}

	var parts []string
	for _, version := range versions {
		var components []string
		for _, service := range t.services {
			if slices.Contains(service.Versions, version) {
				components = append(components, service.Component)
			}
		}
		parts = append(parts, version+": "+strings.Join(components, ", "))
	}

	release, namespace := t.release()
	return []Cause{{
		Message: "the Pods of Akri have several versions (" + strings.Join(parts, "; ") + ")",
		Remedies: []Remedy{
			{Text: "Wait until an update is complete.", Command: fmt.Sprintf(
				"kubectl rollout status daemonset --namespace %s --selector %s=%s --timeout=5m", t.nodeNamespace(), PartOfLabel, PartOf)},
			{Text: "Or repeat the upgrade, and remove image tags of single services from the values.", Command: fmt.Sprintf(
				"helm upgrade %s charts/akri --namespace %s --reset-values --values VALUES.yaml --wait", release, namespace)},
		},
	}}
}
