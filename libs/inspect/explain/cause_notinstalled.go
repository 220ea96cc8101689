package explain

// NotInstalled means that the cluster has no workloads of Akri.
const NotInstalled CauseID = "NotInstalled"

func init() { register(rule{NotInstalled, LinkServices, 0, notInstalled}) }

func notInstalled(t target) []Cause {
	if len(t.services) > 0 {
		return nil
	}
	return []Cause{{
		Message:  "no workload has the label " + PartOfLabel + "=" + PartOf,
		Remedies: []Remedy{{Text: "Install Akri.", Command: "helm install akri charts/akri --namespace akri-system --create-namespace --wait"}},
	}}
}
