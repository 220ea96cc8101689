package check

import (
	"bytes"

	"akri.sh/libs/inspect/explain"
)

// CAName and CAKey name the Secret, the ConfigMap, and the key in both, with the CAs of
// instance-writer.
const (
	CAName = "akri-ca"
	CAKey  = "ca.crt"
)

// CA has the certificates in the objects CAName. Each is nil if it does not exist.
type CA struct {
	// Unreadable is true if the user may not get one of the objects.
	Unreadable bool
	// Signs are those of the Secret, with which instance-writer signs.
	Signs []byte
	// Trusted are those of the ConfigMap, which nodes trust.
	Trusted []byte
}

// certificates checks that nodes trust what instance-writer signs. An object that does not exist is
// a matter of the release and of the services.
func certificates(facts Facts) []Result {
	const name = "CA of instance-writer"
	if facts.CA.Unreadable {
		return []Result{{Name: name, Outcome: Warning, Message: "not checked: you may not get the Secret and the ConfigMap " + CAName}}
	}
	switch ca := facts.CA; {
	case ca.Signs == nil || ca.Trusted == nil:
		return nil
	case !bytes.Equal(ca.Signs, ca.Trusted):
		return []Result{{
			Name: name, Outcome: Failed,
			Message: "the Secret and the ConfigMap " + facts.Namespace + "/" + CAName + " have different certificates: nodes do not trust instance-writer",
			Remedies: []explain.Remedy{
				logsOf(explain.InstanceWriter, "Read why instance-writer does not write the ConfigMap, or find out what else writes it, such as a GitOps tool."),
			},
		}}
	default:
		return []Result{passed(name, "nodes trust it")}
	}
}
