package explain

import (
	"cmp"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// SecretRightMissing means that instance-writer may not read a Secret or ConfigMap.
const SecretRightMissing CauseID = "SecretRightMissing"

func init() {
	register(rule{SecretRightMissing, LinkAccepted, 2, whenFalse(akriv0.ConditionDetailsAccepted, akriv0.ReasonPropertyForbidden, grant)})
}

// grant returns the commands for the objects that nodes report and the spec names. A node could
// report any other object.
func grant(t target) []Remedy {
	var remedies []Remedy
	problems, _ := t.problems(akriv0.ReasonPropertyForbidden)
	for _, object := range propertySources(t.configuration) {
		if !plainName.MatchString(object.Namespace) || !plainName.MatchString(object.Name) {
			continue // no object has such a name
		}
		if slices.ContainsFunc(problems, func(p akriv0.Problem) bool { return p.Subject != nil && *p.Subject == object }) {
			commands := akriv0.GrantCommands(object, t.instanceWriterAccount())
			remedies = append(remedies,
				Remedy{Text: "Allow to read this object.", Command: commands[0]},
				Remedy{Text: "Give the right to instance-writer.", Command: commands[1]})
		}
	}
	if len(remedies) == 0 {
		return []Remedy{{Text: "Give instance-writer the right to read the object."}}
	}
	return remedies
}

// propertySources returns the Secrets and ConfigMaps that the Configuration refers to.
func propertySources(c *akriv0.Configuration) []akriv0.Subject {
	var sources []akriv0.Subject
	add := func(kind string, key *akriv0.KeyRef) {
		source := akriv0.Subject{Kind: kind, Namespace: cmp.Or(key.Namespace, c.Namespace), Name: key.Name}
		if !slices.Contains(sources, source) {
			sources = append(sources, source)
		}
	}
	for _, property := range c.Spec.DiscoveryHandler.DiscoveryProperties {
		switch from := property.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			add("Secret", from.SecretKeyRef)
		case from.ConfigMapKeyRef != nil:
			add("ConfigMap", from.ConfigMapKeyRef)
		}
	}
	return sources
}

// instanceWriterAccount returns the user name of the service account of instance-writer.
func (in *Installation) instanceWriterAccount() string {
	_, namespace := in.release()
	account := "akri-" + InstanceWriter
	for _, d := range ofComponents(in.Deployments, InstanceWriter) {
		account = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, account)
	}
	return "system:serviceaccount:" + namespace + ":" + account
}
