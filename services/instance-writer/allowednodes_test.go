package instancewriter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const siteLabel = akriv0.NodeRestrictionPrefix + "site"

// hostileNode reports a shared and a local device whether or not it may, with texts of its own, and
// collects what it receives.
type hostileNode struct {
	name    string
	site    string // the value of siteLabel; empty: none
	reports *stream
	watch   *configurationWatch
	latest  *configurationv1.Configuration
	// secrets are all values that the node has received.
	secrets map[string]bool
}

// allowedNodesTest changes at random which nodes a Configuration allows.
type allowedNodesTest struct {
	*testing.T
	*fixture
	replicas []*replica
	nodes    []*hostileNode
	random   *rand.Rand
	allowed  *akriv0.AllowedNodes
	key      string
}

func newAllowedNodesTest(t *testing.T) *allowedNodesTest {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	a := &allowedNodesTest{
		T: t, fixture: newFixture(t, 6, 3), random: rand.New(rand.NewPCG(seed, 0)),
		replicas: []*replica{start(t, grace), start(t, grace)},
	}
	a.secret("site-camera", "first")
	a.key = a.discover("debugEcho", "site-camera")
	for i, name := range a.fixture.nodes {
		r := a.replicas[i%len(a.replicas)]
		a.nodes = append(a.nodes, &hostileNode{
			name: name, reports: openReports(t, r), secrets: map[string]bool{},
			watch: openWatch(t, r, &configurationv1.WatchConfigurationsRequest{Node: name, Handlers: []string{"debugEcho"}}),
		})
	}
	return a
}

// allows is the model of spec.nodes.
func (a *allowedNodesTest) allows(n *hostileNode) bool {
	if a.allowed == nil {
		return true
	}
	named := a.allowed.Names == nil || slices.Contains(a.allowed.Names, n.name)
	return named && (a.allowed.MatchLabels == nil || n.site != "" && a.allowed.MatchLabels[siteLabel] == n.site)
}

// change changes spec.nodes or the label of a node.
func (a *allowedNodesTest) change() {
	site := func() string { return []string{"north", "south"}[a.random.IntN(2)] }
	if n := a.nodes[a.random.IntN(len(a.nodes))]; a.random.IntN(2) == 0 {
		n.site = []string{"", "north", "south"}[a.random.IntN(3)]
		a.label(n)
		return
	}

	a.allowed = &akriv0.AllowedNodes{}
	kind := a.random.IntN(4)
	if kind == 0 || kind == 2 {
		for _, i := range a.random.Perm(len(a.nodes))[:1+a.random.IntN(len(a.nodes))] {
			a.allowed.Names = append(a.allowed.Names, a.nodes[i].name)
		}
	}
	if kind == 1 || kind == 2 {
		a.allowed.MatchLabels = map[string]string{siteLabel: site()}
	}
	if kind == 3 {
		a.allowed = nil
	}
	a.edit(func(spec *akriv0.ConfigurationSpec) { spec.Nodes = a.allowed })
}

func (a *allowedNodesTest) label(n *hostileNode) {
	kubetest.Edit(a.T, a.nodeClient.In(""), n.name, func(node *corev1.Node) {
		node.Labels = nil
		if n.site != "" {
			node.Labels = map[string]string{siteLabel: n.site}
		}
	})
}

// receive collects the messages that the node has received.
func (a *allowedNodesTest) receive(n *hostileNode) {
	take := func(configuration *configurationv1.Configuration) {
		if configuration.GetNamespace()+"/"+configuration.GetName() != a.key {
			return
		}
		n.latest = configuration
		if request := configuration.GetRequest(); request != nil {
			n.secrets[values(configuration)["password"]] = true
			n.secrets[request.GetDetails()] = true
		}
	}
	for {
		select {
		case response := <-n.watch.received:
			for _, configuration := range response.GetSnapshot().GetConfigurations() {
				take(configuration)
			}
			take(response.GetUpdated())
		default:
			return
		}
	}
}

// attack makes the node report devices and reserve slots, and returns whether all was refused.
func (a *allowedNodesTest) attack(n *hostileNode) (refused bool) {
	report := a.newReport(n.name, a.device(n.name, "shared", true), a.device(n.name, "local", false))
	report.Handlers[0].Endpoint = "/text-of-" + n.name
	report.Problems = []*instancev1.Problem{{Reason: akriv0.ReasonInvalidDetails, Message: "text-of-" + n.name}}
	refusals := n.reports.send(report)
	refused = len(refusals) == 2 && refusals[0].GetReason() == akriv0.ReasonNodeNotAllowed
	for _, name := range []string{a.instanceName("shared"), a.device(n.name, "local", false).GetInstance()} {
		for _, r := range a.replicas {
			err := reserve(r, n.name, claim(name, uint32(slices.Index(a.nodes, n))))
			refused = refused && status.Code(err) == codes.NotFound
		}
	}
	return refused
}

// check checks the Instances, the answers and the messages after a change.
func (a *allowedNodesTest) check(step int) {
	var listed []string
	for _, n := range a.nodes {
		a.eventually("message", func() bool { a.receive(n); return n.latest != nil && (n.latest.GetRequest() != nil) == a.allows(n) })
		require.Equal(a.T, !a.allows(n), n.latest.GetNodeNotAllowed())
		if a.allows(n) {
			listed = append(listed, n.name)
		}
	}

	// Details and values that change now are for the nodes that are allowed now.
	secret, details := fmt.Sprintf("secret-%d", step), fmt.Sprintf("details-%d", step)
	a.secret("site-camera", secret)
	a.edit(func(spec *akriv0.ConfigurationSpec) { spec.DiscoveryHandler.DiscoveryDetails = details })
	for _, n := range a.nodes {
		if a.allows(n) {
			a.eventually("values", func() bool { a.receive(n); return n.secrets[secret] && n.secrets[details] })
		}
		a.eventually("refusals", func() bool { return a.attack(n) == !a.allows(n) })
	}

	a.eventually("Instances", func() bool {
		list, err := a.instances.In(namespace).List(context.Background(), metav1.ListOptions{})
		require.NoError(a.T, err)
		locals := 0
		for i := range list.Items {
			instance := &list.Items[i]
			users := strings.Join(slices.Collect(maps.Values(instance.Spec.DeviceUsage)), " ")
			for _, n := range a.nodes {
				if !a.allows(n) && (slices.Contains(instance.Spec.Nodes, n.name) || strings.Contains(users, n.name)) {
					return false
				}
			}
			if instance.Name == a.instanceName("shared") && !slices.Equal(instance.Spec.Nodes, listed) {
				return false
			}
			if !instance.Spec.Shared {
				locals++
			}
		}
		return locals == len(listed)
	})
}

// A node that a Configuration does not allow reports devices, reserves slots and watches. It gets
// neither details nor values nor a slot, and no Instance lists it, while spec.nodes and the labels
// of the Nodes change.
func TestNodesThatAreNotAllowed(t *testing.T) {
	a := newAllowedNodesTest(t)
	for _, n := range a.nodes {
		n.site = "north"
		a.label(n)
	}
	for step := range 15 {
		if step > 0 {
			a.change()
		}
		allowed := map[*hostileNode]bool{}
		for _, n := range a.nodes {
			allowed[n] = a.allows(n)
		}
		t.Logf("step %d: %+v, allowed %v", step, a.allowed, slices.Collect(maps.Values(allowed)))
		a.check(step)
		for _, n := range a.nodes {
			a.receive(n)
			require.Equal(t, allowed[n], n.secrets[fmt.Sprintf("secret-%d", step)], "step %d, node %s", step, n.name)
			require.Equal(t, allowed[n], n.secrets[fmt.Sprintf("details-%d", step)], "step %d, node %s", step, n.name)
		}
	}
}

// A slot is refused also while the Instance still lists the node.
func TestReservationOfNodeThatIsNotAllowed(t *testing.T) {
	f := newFixture(t, 1, 2)
	apiProxy := newProxy(t)
	r := startAt(t, apiProxy.URL, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	apiProxy.rejectIf(func(r *http.Request) bool { return r.Method == http.MethodPut && path.Base(r.URL.Path) == name })
	f.edit(func(spec *akriv0.ConfigurationSpec) { spec.Nodes = &akriv0.AllowedNodes{Names: f.nodes[:1]} })
	f.eventually("refusal", func() bool { return status.Code(reserve(r, f.nodes[1], claim(name, 0))) == codes.NotFound })
	require.Equal(t, codes.Unavailable, status.Code(reserve(r, f.nodes[0], claim(name, 0))))
	require.Contains(t, f.get(name).Spec.Nodes, f.nodes[1])
}

// The status names a node that is not allowed and reports devices, with nothing that the node has
// chosen. Other conditions do not depend on the node, and nothing remains when it reports no
// device.
func TestStatusOfNodeThatIsNotAllowed(t *testing.T) {
	f := newFixture(t, 1, 2)
	r, honest, thief := start(t, grace), f.nodes[0], f.nodes[1]
	f.edit(func(spec *akriv0.ConfigurationSpec) { spec.Nodes = &akriv0.AllowedNodes{Names: []string{honest}} })
	require.Empty(t, openReports(t, r).send(f.newReport(honest, f.device(honest, "own", false))))

	hostile := f.newReport(thief, f.device(thief, "own", false))
	hostile.Handlers[0].Endpoint = "/chosen"
	hostile.Problems = []*instancev1.Problem{{Reason: akriv0.ReasonInvalidDetails, Message: "chosen"}}
	s := openReports(t, r)
	f.eventually("refusal", func() bool { return len(s.send(hostile)) == 1 })
	f.eventually("status", func() bool {
		return len(f.status().Nodes) == 2 && meta.IsStatusConditionTrue(f.status().Conditions, akriv0.ConditionDevicesAccepted)
	})
	encoded, err := json.Marshal(f.status())
	require.NoError(t, err)
	require.NotContains(t, string(encoded), "chosen")
	problem := f.status().Nodes[1].Problems[0]
	require.Equal(t, akriv0.ReasonNodeNotAllowed, problem.Reason)
	require.Equal(t, fmt.Sprintf("devices on node %q are not accepted: spec.nodes does not allow the node", thief), problem.Message)

	require.Empty(t, s.send(f.newReport(thief)))
	f.eventually("status", func() bool {
		return len(f.status().Nodes) == 1 && meta.IsStatusConditionTrue(f.status().Conditions, akriv0.ConditionDevicesAccepted)
	})
}
