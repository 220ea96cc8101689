package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ClaimNotFound means that a ResourceClaim or a ResourceClaimTemplate that a Pod names does not
// exist.
const ClaimNotFound CauseID = "ClaimNotFound"

func init() { register(rule{ClaimNotFound, LinkScheduled, 0, claimNotFound}) }

func claimNotFound(t target) []Cause {
	var causes []Cause
	namespace := t.pod.Namespace
	for _, claim := range t.claimsOf(t.pod) {
		if claim.spec != nil {
			continue
		}
		causes = append(causes, Cause{
			Subject: &akriv0.Subject{Kind: claim.kind, Namespace: namespace, Name: claim.name},
			Message: fmt.Sprintf("%s does not exist in the namespace %s", &claim, namespace),
			Remedies: []Remedy{
				{Text: "Create it. The Pod need not be created again.", Command: "kubectl apply --namespace " + namespace + " -f CLAIM.yaml"},
				{Text: "These exist:", Command: "kubectl get resourceclaims,resourceclaimtemplates --namespace " + namespace},
			},
		})
	}
	return causes
}
