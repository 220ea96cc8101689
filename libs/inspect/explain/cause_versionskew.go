package explain

import (
	"slices"
	"strings"
)

// VersionSkew means that Pods of Akri run different versions.
const VersionSkew CauseID = "VersionSkew"

func init() { register(rule{VersionSkew, LinkServices, 9, versionSkew}) }

func versionSkew(t target, report func(Cause)) {
	versions := Versions(t.services)
	if len(versions) < 2 {
		return
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
	report(Cause{Message: "the Pods of Akri have several versions (" + strings.Join(parts, "; ") + ")", Remedies: []Remedy{
		remedy("Wait until an update is complete.", "kubectl rollout status daemonset --namespace %s --selector %s=%s --timeout=5m",
			t.nodeNamespace(), PartOfLabel, PartOf),
		t.restarting(remedy("Or repeat the upgrade, and remove image tags of single services from the values.",
			"helm upgrade %s charts/akri --namespace %s --reset-values --values VALUES.yaml --wait", release, namespace)),
	}})
}
