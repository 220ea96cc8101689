package explain

// NotInstalled means that the cluster has no workloads of Akri.
const NotInstalled CauseID = "NotInstalled"

func init() { register(rule{NotInstalled, LinkServices, 0, notInstalled}) }

func notInstalled(t target, report func(Cause)) {
	if len(t.services) == 0 {
		install := remedy("Install Akri.", "helm install akri charts/akri --namespace akri-system --create-namespace --wait")
		report(Cause{Message: "no workload has the label " + PartOfLabel + "=" + PartOf, Remedies: []Remedy{install}})
	}
}
