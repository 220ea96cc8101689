package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NotFound means that there is no such object. No rule finds it: nothing else can be examined then.
const NotFound CauseID = "NotFound"

func noConfiguration(s *Snapshot, namespace, name string) Cause {
	cause := Cause{ID: NotFound, Message: fmt.Sprintf("there is no Configuration %s in the namespace %s", name, namespace)}
	for i := range s.Configurations {
		if other := &s.Configurations[i]; other.Name == name {
			cause.Message += fmt.Sprintf("; there is one in the namespace %s", other.Namespace)
			cause.Remedies = append(cause.Remedies,
				remedy("Name its namespace.", "kubectl akri explain configuration %s --namespace %s", name, other.Namespace))
		}
	}
	cause.Remedies = append(cause.Remedies,
		remedy("List all Configurations.", "kubectl get configurations.akri.sh --all-namespaces"),
		remedy("Or apply it, and read the errors.", "kubectl apply -f CONFIGURATION.yaml"))
	return cause
}

// noInstance returns the cause for a name that is that of an Instance of the Configuration, which
// may be nil.
func noInstance(c *akriv0.Configuration, namespace, name string) Cause {
	cause := Cause{
		ID: NotFound, Message: fmt.Sprintf("there is no Instance %s in the namespace %s", name, namespace),
		Remedies: []Remedy{remedy("List the devices.", "kubectl akri devices --all-namespaces")},
	}
	if c != nil {
		cause.Message += fmt.Sprintf(": no handler reports its device to the Configuration %s", c.Name)
		cause.Remedies = append(cause.Remedies, describeConfiguration("Read when the device was removed.", c))
	}
	return cause
}

func noPod(namespace, name string) Cause {
	return Cause{
		ID: NotFound, Message: fmt.Sprintf("no Pod %s that requests a device exists in the namespace %s", name, namespace),
		Remedies: []Remedy{remedy("List the Pods, and read why one is not created.", "kubectl get pods,events --namespace %s", namespace)},
	}
}
