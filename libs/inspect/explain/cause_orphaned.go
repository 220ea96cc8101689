package explain

import "fmt"

// Orphaned means that the Configuration of an Instance does not exist.
const Orphaned CauseID = "Orphaned"

func init() { register(rule{Orphaned, LinkSeen, 1, orphaned}) }

// orphaned waits for the garbage collector, which deletes the Instances of a deleted Configuration.
func orphaned(t target, report func(Cause)) {
	for _, instance := range t.instances {
		owner := instance.Spec.ConfigurationName
		if !t.readable("configurations") || Find(t.Configurations, instance.Namespace, owner) != nil ||
			t.now().Before(instance.CreationTimestamp.Add(writeTimeout)) || instance.DeletionTimestamp != nil {
			continue
		}
		report(Cause{
			Subject: subject("Instance", instance.Namespace, instance.Name),
			Message: fmt.Sprintf("its Configuration %s does not exist", owner),
			Remedies: []Remedy{
				remedy("Create the Configuration again, if it is needed.", "kubectl apply -f CONFIGURATION.yaml"),
				remedy("Otherwise delete the Instance, if the garbage collector of Kubernetes does not.",
					"kubectl delete instance.akri.sh %s --namespace %s", instance.Name, instance.Namespace).interrupting("Instance", instance.Namespace, instance.Name),
			},
		})
	}
}
