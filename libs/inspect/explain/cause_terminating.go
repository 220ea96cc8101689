package explain

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Terminating means that an object was deleted and finalizers keep it.
const Terminating CauseID = "Terminating"

func init() {
	register(rule{Terminating, LinkSeen, 0, instanceTerminating}, rule{Terminating, LinkAccepted, 10, configurationTerminating},
		rule{Terminating, LinkContainer, 5, podTerminating})
}

func instanceTerminating(t target, report func(Cause)) {
	for _, instance := range t.instances {
		terminating(t, "Instance", instance, report)
	}
}

func configurationTerminating(t target, report func(Cause)) {
	terminating(t, "Configuration", t.configuration, report)
}

// podTerminating finds Pods whose containers have ended, or never started, and that hold their
// name.
func podTerminating(t target, report func(Cause)) {
	if t.pod != nil {
		terminating(t, "Pod", t.pod, report)
	}
}

// terminating reports an object that finalizers have kept for longer than their owners take.
func terminating(t target, kind string, object metav1.Object, report func(Cause)) {
	deleted := object.GetDeletionTimestamp()
	if deleted == nil || len(object.GetFinalizers()) == 0 || t.now().Before(deleted.Add(writeTimeout)) {
		return
	}

	resource := strings.ToLower(kind)
	if kind != "Pod" {
		resource += "." + akriv0.Group
	}
	report(Cause{
		Subject: subject(kind, object.GetNamespace(), object.GetName()), Since: deleted,
		Message: fmt.Sprintf("%s %s was deleted, and these finalizers keep it: %s", kind, object.GetName(), strings.Join(object.GetFinalizers(), ", ")),
		Remedies: []Remedy{
			remedy("Check that the owners of the finalizers run. Akri sets none.",
				"kubectl get %s %s --namespace %s --output jsonpath='{.metadata.finalizers}'", resource, object.GetName(), object.GetNamespace()),
			remedy("If an owner does not exist any more, remove the finalizers. What the owner would clean up stays.",
				`kubectl patch %s %s --namespace %s --type=merge --patch '{"metadata":{"finalizers":null}}'`, resource, object.GetName(), object.GetNamespace()),
		},
	})
}
