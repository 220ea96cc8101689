package explain

import "fmt"

// ClaimNotFound means that a ResourceClaim or a ResourceClaimTemplate that a Pod names does not
// exist.
const ClaimNotFound CauseID = "ClaimNotFound"

func init() { register(rule{ClaimNotFound, LinkScheduled, 0, claimNotFound}) }

func claimNotFound(t target, report func(Cause)) {
	namespace := t.pod.Namespace
	for _, claim := range t.claims() {
		if claim.spec != nil {
			continue
		}
		report(Cause{
			Subject: subject(claim.kind, namespace, claim.name),
			Message: fmt.Sprintf("%s does not exist in the namespace %s", &claim, namespace),
			Remedies: []Remedy{
				remedy("Create it. The Pod need not be created again.", "kubectl apply --namespace %s -f CLAIM.yaml", namespace),
				remedy("These exist:", "kubectl get resourceclaims,resourceclaimtemplates --namespace %s", namespace),
			},
		})
	}
}
