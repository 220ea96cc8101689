package namespaces

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxExpression is less than the 100,000 characters to which CEL limits an expression.
const maxExpression = 64 << 10

// Names of the policies.
const (
	Pods   = "akri-allowed-namespaces"
	Claims = "akri-allowed-namespaces-of-claims"
)

// rules are CEL expressions of a policy.
type rules struct {
	// refused are the devices that the namespace may not use.
	refused string
	// isValid is whether there are none.
	isValid string
	message string
}

const remedy = ` +
  '; an author of its Configuration can add the namespace to spec.allowedNamespaces'`

var rulesOf = map[string]rules{
	// The resources of each container. A resource is named like a Configuration or like an
	// Instance, which has a prefix and a digest.
	Pods: {
		refused: `(object.spec.containers + object.spec.?initContainers.orValue([])).map(c,
  c.?resources.?limits.orValue({}).filter(name, name.startsWith('akri.sh/') &&
  [name.substring(8).replace('.', '-') + '-',
  name.matches('^akri[.]sh/.*-[0-9a-f]{6}(x[0-9a-f]{6})?$') ? name.substring(8, name.lastIndexOf('-') + 1) : ''
  ].exists(prefix, variables.allowed.exists(allowed, prefix in allowed &&
  !(request.namespace in allowed[prefix].split(' '))))))`,
		isValid: "variables.refused.all(names, size(names) == 0)",
		message: `'Pods of namespace "' + request.namespace + '" may not use ' +
  variables.refused.filter(names, size(names) > 0)[0][0]` + remedy,
	},
	// A pool is named like its Instance, after the namespace.
	Claims: {
		refused: `object.status.allocation.devices.results.filter(r, r.driver == 'akri.sh' &&
  [r.pool.substring(r.pool.indexOf('/') + 1, r.pool.lastIndexOf('-') + 1)].exists(prefix, variables.allowed.exists(allowed,
  prefix in allowed && !(request.namespace in allowed[prefix].split(' ')))))`,
		isValid: "size(variables.refused) == 0",
		message: `'ResourceClaims of namespace "' + request.namespace + '" may not use ' +
  variables.refused[0].pool` + remedy,
	},
}

// with returns the variables and validations of the policy for the result of Allowed. Both are nil
// if nothing is restricted.
func (r rules) with(allowed map[string]string) ([]admissionv1.Variable, []admissionv1.Validation) {
	if len(allowed) == 0 {
		return nil, nil
	}
	parts := literals(allowed)
	variables, names := make([]admissionv1.Variable, 0, len(parts)+2), make([]string, 0, len(parts))
	for i, part := range parts {
		name := fmt.Sprintf("allowed%d", i)
		variables = append(variables, admissionv1.Variable{Name: name, Expression: part})
		names = append(names, "variables."+name)
	}
	variables = append(variables,
		admissionv1.Variable{Name: "allowed", Expression: "[" + strings.Join(names, ", ") + "]"},
		admissionv1.Variable{Name: "refused", Expression: r.refused})
	return variables, []admissionv1.Validation{{
		Expression: r.isValid, MessageExpression: r.message, Reason: new(metav1.StatusReasonForbidden),
	}}
}

// literals returns the map as map literals of CEL, each of at most about maxExpression bytes.
func literals(allowed map[string]string) (parts []string) {
	var part strings.Builder
	for _, prefix := range slices.Sorted(maps.Keys(allowed)) {
		entry := strconv.Quote(prefix) + ": " + strconv.Quote(allowed[prefix])
		if part.Len() > 0 && part.Len()+len(entry) > maxExpression {
			parts = append(parts, "{"+part.String()+"}")
			part.Reset()
		}
		if part.Len() > 0 {
			part.WriteString(", ")
		}
		part.WriteString(entry)
	}
	return append(parts, "{"+part.String()+"}")
}
