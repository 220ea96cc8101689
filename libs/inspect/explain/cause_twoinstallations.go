package explain

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
)

// TwoInstallations means that several releases of Akri run in the cluster. They write the same
// Instances, and register the same resources.
const TwoInstallations CauseID = "TwoInstallations"

func init() {
	register(rule{TwoInstallations, LinkServices, 7, func(t target, report func(Cause)) {
		if cause := t.twoInstallations(); cause != nil {
			report(*cause)
		}
	}})
}

// twoInstallations returns the cause if several releases have an instance-writer, or nil.
func (in *Installation) twoInstallations() *Cause {
	var releases []string
	for _, d := range ofComponents(in.Deployments, InstanceWriter) {
		releases = append(releases, releaseOf(d))
	}
	slices.Sort(releases)
	if releases = slices.Compact(releases); len(releases) < 2 {
		return nil
	}
	return &Cause{
		ID:      TwoInstallations,
		Message: fmt.Sprintf("Akri is installed by %s", strings.Join(releases, " and by ")),
		Remedies: []Remedy{
			remedy("List the releases.", "helm list --all-namespaces"),
			remedy("Uninstall all but one.", "helm uninstall RELEASE --namespace NAMESPACE").
				interrupting("Release", "NAMESPACE", "RELEASE"),
		},
	}
}

func releaseOf(d *appsv1.Deployment) string {
	return fmt.Sprintf("the release %s in the namespace %s", d.Labels[releaseLabel], d.Namespace)
}
