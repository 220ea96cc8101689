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

// The resources of each container that the namespace may not use. A resource is named like a
// Configuration or like an Instance, which has a prefix and a digest.
const refused = `(object.spec.containers + object.spec.?initContainers.orValue([])).map(c,
  c.?resources.?limits.orValue({}).filter(name, name.startsWith('akri.sh/') &&
  [name.substring(8).replace('.', '-') + '-',
  name.matches('^akri[.]sh/.*-[0-9a-f]{6}(x[0-9a-f]{6})?$') ? name.substring(8, name.lastIndexOf('-') + 1) : ''
  ].exists(prefix, variables.allowed.exists(allowed, prefix in allowed &&
  !(request.namespace in allowed[prefix].split(' '))))))`

const message = `'Pods of namespace "' + request.namespace + '" may not use ' +
  variables.refused.filter(names, size(names) > 0)[0][0] +
  '; an author of its Configuration can add the namespace to spec.allowedNamespaces'`

// rules returns the variables and validations of the policy for the result of Allowed. Both are nil
// if nothing is restricted.
func rules(allowed map[string]string) ([]admissionv1.Variable, []admissionv1.Validation) {
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
		admissionv1.Variable{Name: "refused", Expression: refused})
	return variables, []admissionv1.Validation{{
		Expression: "variables.refused.all(names, size(names) == 0)", MessageExpression: message,
		Reason: new(metav1.StatusReasonForbidden),
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
