package check

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
)

// The ValidatingAdmissionPolicies of the chart akri. Each has a binding with its name.
const (
	authorsPolicy = "akri-authors"
	podsPolicy    = "akri-allowed-namespaces"
	// claimsPolicy exists with Dynamic Resource Allocation.
	claimsPolicy = "akri-allowed-namespaces-of-claims"
)

// PolicyNames are the names of the policies that checks need, and of their bindings.
func PolicyNames() []string { return []string{authorsPolicy, podsPolicy, claimsPolicy} }

// authors checks that the API server checks the rights of the authors of Configurations.
func authors(facts Facts) Result {
	return enforced("rights of authors", "broker-controller.authors.enabled", facts,
		"users get Pods, Secrets and handlers that they have no right to use", authorsPolicy)
}

// allowedNamespaces checks that the API server refuses Pods of the namespaces that may not use a
// device.
func allowedNamespaces(s *explain.Snapshot, facts Facts) Result {
	const name = "allowed namespaces"
	policies := []string{podsPolicy}
	if slices.ContainsFunc(s.Deployments, func(d appsv1.Deployment) bool { return d.Labels[explain.ComponentLabel] == "dra-controller" }) {
		policies = append(policies, claimsPolicy)
	}
	result := enforced(name, "broker-controller.allowedNamespaces.enabled", facts, "Pods of all namespaces use the devices", policies...)
	if result.Outcome != Passed {
		return result
	}

	for _, policy := range policies {
		if missing := notWritten(s, facts.Policies[policy]); len(missing) > 0 {
			return Result{
				Name: name, Outcome: Failed,
				Message: "broker-controller has not written spec.allowedNamespaces of " + explain.NodeList(missing) +
					" into the ValidatingAdmissionPolicy " + policy + ": Pods of all namespaces use the devices",
				Remedies: []explain.Remedy{logsOfBrokerController("Read why.")},
			}
		}
	}
	return result
}

// notWritten returns the Configurations with allowedNamespaces that the policy does not have. It
// has the prefix of the names of their Instances. A Configuration whose name is taken has no
// devices and is not in the policy.
func notWritten(s *explain.Snapshot, policy *admissionregistrationv1.ValidatingAdmissionPolicy) []string {
	var missing []string
	for i := range s.Configurations {
		c := &s.Configurations[i]
		if len(c.Spec.AllowedNamespaces) == 0 || status.Condition(c, akriv0.ConditionDevicesAccepted).Reason == akriv0.ReasonNameTaken {
			continue
		}
		prefix := strconv.Quote(akriv0.InstanceName(c.Name, ""))
		has := func(v admissionregistrationv1.Variable) bool { return strings.Contains(v.Expression, prefix) }
		if len(policy.Spec.Validations) == 0 || !slices.ContainsFunc(policy.Spec.Variables, has) {
			missing = append(missing, c.Namespace+"/"+c.Name)
		}
	}
	return missing
}

// enforced checks that the API server denies what the policies refuse, unless the value of the
// release disables them. Without them the consequence follows.
func enforced(name, value string, facts Facts, consequence string, policies ...string) Result {
	for _, value := range []string{"broker-controller.enabled", value} {
		if facts.Weakening[value] != "" {
			return Result{Name: name, Outcome: Warning, Message: "they are not checked, because " + value + " is false"}
		}
	}
	if len(facts.Unreadable) > 0 {
		return Result{Name: name, Outcome: Warning, Message: "not checked: you may not get " + strings.Join(facts.Unreadable, ", ")}
	}

	for _, policy := range policies {
		if problem := notEnforced(policy, facts); problem != "" {
			return Result{Name: name, Outcome: Failed, Message: problem + ": " + consequence, Remedies: []explain.Remedy{{ // which restarts nothing: no value changes
				Text: "Install it again, with the values of the release.", Command: "helm upgrade akri charts/akri --namespace " + facts.Namespace + " --reuse-values",
			}}}
		}
	}
	return passed(name, "the API server checks them")
}

// notEnforced returns why the API server does not deny what the policy refuses, or nothing.
func notEnforced(policy string, facts Facts) string {
	binding := facts.Bindings[policy]
	switch {
	case facts.Policies[policy] == nil:
		return "the ValidatingAdmissionPolicy " + policy + " does not exist"
	case binding == nil:
		return "the ValidatingAdmissionPolicyBinding " + policy + " does not exist"
	case binding.Spec.PolicyName != policy || binding.Spec.MatchResources != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		return "the ValidatingAdmissionPolicyBinding " + policy + " does not deny all that the policy refuses"
	default:
		return ""
	}
}
