package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/admission"
)

// grants is an Authorizer with the rights that a user has, as "verb resource name namespace".
type grants struct {
	granted []string
	err     error

	mu    sync.Mutex
	asked []string
}

func (g *grants) Allowed(_ context.Context, _ authenticationv1.UserInfo, a authorizationv1.ResourceAttributes) (bool, error) {
	asked := fmt.Sprintf("%s %s %s in %s", a.Verb, strings.Trim(a.Resource+"."+a.Group, "."), a.Name, a.Namespace)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, asked)
	return slices.Contains(g.granted, asked), g.err
}

const (
	useEcho    = "use discoveryhandlers.akri.sh debugEcho in tenant"
	createPods = "create pods  in tenant"
)

func byTenant(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionRequest {
	request.Namespace, request.UserInfo = "tenant", authenticationv1.UserInfo{Username: "ann", Groups: []string{"tenants"}}
	return request
}

const brokerOfTenant = `{discoveryHandler: {name: debugEcho, discoveryDetails: a, discoveryProperties: [
  {name: a, value: x},
  {name: b, valueFrom: {secretKeyRef: {name: camera, namespace: prod, key: k}}},
  {name: c, valueFrom: {configMapKeyRef: {name: settings, key: k}}}]},
  brokerSpec: {brokerPodSpec: {
    volumes: [{name: v, secret: {secretName: volume}}, {name: w, configMap: {name: volume}},
      {name: p, projected: {sources: [{secret: {name: projected}}, {configMap: {name: projected}}]}}],
    initContainers: [{name: i, envFrom: [{secretRef: {name: all}}, {configMapRef: {name: all}}]}],
    containers: [{name: a, ` + device + `, env: [
      {name: A, valueFrom: {secretKeyRef: {name: one, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: one, key: k}}},
      {name: C, valueFrom: {secretKeyRef: {name: one, key: other}}}]}]}},
  instanceServiceSpec: {}, configurationServiceSpec: {}}`

var rightsOfTenant = []string{
	useEcho, "get secrets camera in prod", "get configmaps settings in tenant", createPods,
	"get secrets all in tenant", "get configmaps all in tenant", "get secrets one in tenant", "get configmaps one in tenant",
	"get secrets volume in tenant", "get configmaps volume in tenant",
	"get secrets projected in tenant", "get configmaps projected in tenant", "create services  in tenant",
}

// TestRightsOfAuthors takes one right away at a time.
func TestRightsOfAuthors(t *testing.T) {
	for _, missing := range rightsOfTenant {
		authorizer := &grants{granted: slices.DeleteFunc(slices.Clone(rightsOfTenant), func(s string) bool { return s == missing })}
		reviewer := admission.Reviewer{Schema: newerSchema{}, Authorizer: authorizer}
		response := reviewer.Review(t.Context(), byTenant(created(t, brokerOfTenant)))
		require.False(t, response.Allowed, missing)
		require.Equal(t, metav1.StatusReasonForbidden, response.Result.Reason)
		require.Equal(t, 1, strings.Count(response.Result.Message, "\n- spec."), response.Result.Message)
		verb, _, _ := strings.Cut(missing, " ")
		require.Contains(t, response.Result.Message, `: user "ann" cannot `+verb)
	}
	authorizer := &grants{granted: rightsOfTenant}
	response := admission.Reviewer{Schema: newerSchema{}, Authorizer: authorizer}.Review(t.Context(), byTenant(created(t, brokerOfTenant)))
	require.True(t, response.Allowed, response.Result)
}

func TestMessageOfMissingRights(t *testing.T) {
	reviewer := admission.Reviewer{Schema: newerSchema{}, Authorizer: &grants{granted: rightsOfTenant[2:]}}
	request := byTenant(created(t, brokerOfTenant))
	request.UserInfo.Username = "system:serviceaccount:ci:deployer"
	require.Equal(t, `Akri would act for the author of the Configuration, who must have the rights for it:
- spec.discoveryHandler.name: user "system:serviceaccount:ci:deployer" cannot use discoveryhandlers.akri.sh "debugEcho" in namespace "tenant"
- spec.discoveryHandler.discoveryProperties[1].valueFrom.secretKeyRef: user "system:serviceaccount:ci:deployer" cannot get secrets "camera" in namespace "prod"
A user with these rights can grant them with:
kubectl apply -f - <<'EOF'
`+role("tenant", "akri-author-HASH", "akri.sh", "debugEcho", "discoveryhandlers", "use")+"---\n"+
		role("prod", "akri-author-HASH", `""`, "camera", "secrets", "get")+"EOF",
		withoutHashes(reviewer.Review(t.Context(), request).Result.Message))
}

func role(namespace, name, group, resourceName, resource, verb string) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "GROUP", group, "OBJECT", resourceName, "RESOURCE", resource, "VERB", verb).Replace(
		`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: NAME
  namespace: NAMESPACE
rules:
- apiGroups:
  - GROUP
  resourceNames:
  - OBJECT
  resources:
  - RESOURCE
  verbs:
  - VERB
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: NAME
  namespace: NAMESPACE
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: NAME
subjects:
- kind: ServiceAccount
  name: deployer
  namespace: ci
`)
}

func withoutHashes(message string) string {
	parts := strings.Split(message, "akri-author-")
	for i := range parts[1:] {
		parts[i+1] = "HASH" + parts[i+1][8:]
	}
	return strings.Join(parts, "akri-author-")
}

// TestRightsOfEdits edits one part of a Configuration without any right.
func TestRightsOfEdits(t *testing.T) {
	for name, c := range map[string]struct{ from, to, needs string }{
		"capacity":            {"instanceServiceSpec", "capacity: 5, instanceServiceSpec", ""},
		"no Service":          {", configurationServiceSpec: {}", "", ""},
		"broker":              {"name: volume", "name: other", "create pods"},
		"broker's properties": {"instanceServiceSpec", "brokerProperties: {LD_PRELOAD: x}, instanceServiceSpec", "create pods"},
		"details":             {"discoveryDetails: a", "discoveryDetails: b", "get secrets \"camera\""},
		"Service":             {"instanceServiceSpec: {}", "instanceServiceSpec: {type: LoadBalancer}", "create services"},
	} {
		t.Run(name, func(t *testing.T) {
			edited := strings.Replace(brokerOfTenant, c.from, c.to, 1)
			require.NotEqual(t, brokerOfTenant, edited)
			request := byTenant(created(t, edited))
			request.Operation, request.OldObject = admissionv1.Update, object(t, brokerOfTenant)
			response := admission.Reviewer{Schema: newerSchema{}, Authorizer: &grants{}}.Review(t.Context(), request)
			require.Equal(t, c.needs == "", response.Allowed, response.Result)
			if c.needs != "" {
				require.Contains(t, response.Result.Message, "cannot "+c.needs)
			}
		})
	}
}

// TestBoundedRights names more Secrets than are checked one by one.
func TestBoundedRights(t *testing.T) {
	var env strings.Builder
	for i := range 600 {
		fmt.Fprintf(&env, "{name: A%d, valueFrom: {secretKeyRef: {name: s%d, key: k}}}, ", i, i)
	}
	spec := container(`env: [` + env.String() + `], ` + device)
	authorizer := &grants{}
	response := admission.Reviewer{Schema: newerSchema{}, Authorizer: authorizer}.Review(t.Context(), byTenant(created(t, spec)))
	require.Contains(t, response.Result.Message, "spec: Too many: 602: must have at most 512 items")
	require.Empty(t, authorizer.asked)
}

func TestRightsThatCannotBeChecked(t *testing.T) {
	reviewer := admission.Reviewer{Schema: newerSchema{}, Authorizer: &grants{err: errors.New("no connection")}}
	response := reviewer.Review(t.Context(), byTenant(created(t, container(device))))
	require.False(t, response.Allowed)
	require.Equal(t, metav1.StatusReasonInternalError, response.Result.Reason)
	require.Equal(t, `checking the rights of user "ann" failed: no connection`, response.Result.Message)
}

// TestNameOfAnInstance checks both orders of creation.
func TestNameOfAnInstance(t *testing.T) {
	for name, c := range map[string]struct{ existing, created, message string }{
		"later":     {"debug-echo", "debug-echo-8120fe", "is a name of Instances of Configuration prod/debug-echo; both"},
		"earlier":   {"debug-echo-8120fe", "debug-echo", "Configuration prod/debug-echo-8120fe has a name of Instances of this one; both"},
		"with dots": {"debug.echo", "debug-echo-8120fe", "is a name of Instances of Configuration prod/debug.echo; both"},
		"no digest": {"debug-echo", "debug-echo-camera", ""},
		"too long":  {"debug-echo", "debug-echo-8120fe0", ""},
		"another":   {"debug", "debug-echo-8120fe", ""},
	} {
		t.Run(name, func(t *testing.T) {
			existing := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: c.existing}}
			reviewer := admission.Reviewer{Schema: newerSchema{}, Others: func() []*akriv0.Configuration { return []*akriv0.Configuration{existing} }}
			request := byTenant(created(t, container(device)))
			request.Name = c.created
			response := reviewer.Review(t.Context(), request)
			require.Equal(t, c.message == "", response.Allowed)
			if c.message != "" {
				require.Contains(t, response.Result.Message, "metadata.name: Forbidden: "+c.message)
			}
			request.Operation, request.OldObject = admissionv1.Update, object(t, head+`capacity: 5}`)
			require.True(t, reviewer.Review(t.Context(), request).Allowed, "existing Configurations can be edited")
		})
	}
}

// TestBoundedProblems has more problems than a response.
func TestBoundedProblems(t *testing.T) {
	for name, c := range map[string]struct{ before, entry, after string }{
		"unknown fields": {"", `"f%d": 1, `, ""},
		"wrong types":    {"args: [", "%d, ", "], "},
	} {
		t.Run(name, func(t *testing.T) {
			var entries strings.Builder
			for i := range 100_000 {
				fmt.Fprintf(&entries, c.entry, i)
			}
			response := reviewer.Review(t.Context(), created(t, container(c.before+entries.String()+c.after+device)))
			require.False(t, response.Allowed)
			require.Len(t, response.Result.Details.Causes, 51)
			require.Contains(t, response.Result.Message, "spec: Invalid value: has 99950 more problems")
		})
	}
}
