package explain_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/selector"
)

var update = flag.Bool("update", false, "write the golden files")

func explainObject(s *explain.Snapshot, kind, name string) explain.Explanation {
	switch kind {
	case "configuration":
		return explain.Configuration(s, "default", name)
	case "instance":
		return explain.Instance(s, "default", name)
	default:
		return explain.Pod(s, "default", name)
	}
}

// load returns a healthy cluster with the differences of the file. Files of Dynamic Resource
// Allocation are differences to dra.yaml.
func load(t *testing.T, file string) *explain.Snapshot {
	t.Helper()
	files := []string{"testdata/healthy.yaml"}
	if strings.HasPrefix(file, "dra") {
		files = append(files, "testdata/dra.yaml")
	}
	s := fixture.Load(t, append(files, filepath.Join("testdata", file+".yaml"))...)
	s.Selectors = selector.New()
	return s
}

// TestCauses explains objects of a healthy cluster with the differences of testdata/<case>.yaml.
// The golden files have all links and remedies.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		file, kind, name string
		broken           string // link
		want             explain.CauseID
	}{
		{"misspelt-handler", "configuration", "camera", explain.LinkHandler, explain.NoSuchHandler},
		{"disabled-handler", "configuration", "camera", explain.LinkHandler, explain.NoSuchHandler},
		{"handler-offline", "configuration", "camera", explain.LinkHandler, explain.HandlerOffline},
		{"details-refused", "configuration", "camera", explain.LinkAccepted, explain.DetailsRefused},
		{"secret-right-missing", "configuration", "camera", explain.LinkAccepted, explain.SecretRightMissing},
		{"property-not-found", "configuration", "camera", explain.LinkAccepted, explain.PropertyNotFound},
		{"discovery-failed", "configuration", "camera", explain.LinkAccepted, explain.DiscoveryFailed},
		{"name-taken", "configuration", "camera", explain.LinkAccepted, explain.NameTaken},
		{"invalid-spec", "configuration", "camera", explain.LinkAccepted, explain.SpecInvalid},
		{"nothing-matched", "configuration", "camera", explain.LinkFound, explain.NothingMatched},
		{"nothing-matched", "instance", "camera-8120fe", explain.LinkFound, explain.NothingMatched},
		{"digest-collision", "configuration", "camera", explain.LinkInstances, explain.DigestCollision},
		{"not-advertised", "configuration", "camera", explain.LinkResource, explain.ResourceNotAdvertised},
		{"webhook-away", "configuration", "new", explain.LinkServices, explain.WebhookUnavailable},
		{"pod-security", "configuration", "camera", explain.LinkCreated, explain.PodSecurity},
		{"webhook-refused", "configuration", "camera", explain.LinkCreated, explain.WebhookRefused},
		{"quota", "instance", "camera-8120fe", explain.LinkCreated, explain.QuotaExceeded},
		{"image", "configuration", "camera", explain.LinkContainer, explain.ImageNotPulled},
		{"crash-loop", "instance", "camera-8120fe", explain.LinkContainer, explain.CrashLoop},
		{"capacity-used", "pod", "waiting", explain.LinkScheduled, explain.CapacityUsed},
		{"capacity-used-of-configuration", "pod", "waiting", explain.LinkScheduled, explain.CapacityUsed},
		{"unknown-resource", "pod", "waiting", explain.LinkResource, explain.ResourceUnknown},
		{"resource-of-broken-configuration", "pod", "waiting", explain.LinkResource, explain.DetailsRefused},
		{"unschedulable", "pod", "waiting", explain.LinkScheduled, explain.Unschedulable},
		{"outdated-node-status", "pod", "late", explain.LinkAdmitted, explain.OutdatedNodeStatus},
		{"no-healthy-device", "pod", "late", explain.LinkAdmitted, explain.OutdatedNodeStatus},
		{"allocation-refused", "pod", "late", explain.LinkAdmitted, explain.AllocationRefused},
		{"slot-not-held", "pod", "stray", explain.LinkSlot, explain.SlotNotHeld},
		{"dra-capacity-used", "pod", "waiting", explain.LinkScheduled, explain.CapacityUsed},
		{"dra-feature-missing", "pod", "waiting", explain.LinkScheduled, explain.FeatureMissing},
		{"dra-scheduler-bypassed", "pod", "direct", explain.LinkSlot, explain.SchedulerBypassed},
		{"dra-claim-not-found", "pod", "viewer", explain.LinkScheduled, explain.ClaimNotFound},
		{"dra-template-not-found", "pod", "viewer", explain.LinkScheduled, explain.ClaimNotFound},
		{"dra-no-device-selected", "pod", "viewer", explain.LinkScheduled, explain.NoDeviceSelected},
		{"dra-no-slice", "pod", "viewer", explain.LinkScheduled, explain.CapacityUsed},
		{"dra-claims-used", "pod", "viewer", explain.LinkScheduled, explain.CapacityUsed},
		{"dra-device-tainted", "pod", "viewer", explain.LinkScheduled, explain.DeviceTainted},
		{"dra-claim-not-prepared", "pod", "viewer", explain.LinkSlot, explain.ClaimNotPrepared},
		{"no-device", "pod", "plain", explain.LinkResource, explain.NoDeviceRequested},
	} {
		t.Run(c.file+"/"+c.kind, func(t *testing.T) {
			e := explainObject(load(t, c.file), c.kind, c.name)
			golden(t, c.file+"."+c.kind, e)
			require.NotNil(t, e.Broken())
			require.Equal(t, c.broken, e.Broken().Name)
			require.Equal(t, c.want, e.Cause().ID)
			require.NotEmpty(t, e.Cause().Remedies)
		})
	}
}

// TestPartial explains objects that work in part.
func TestPartial(t *testing.T) {
	for _, c := range []struct {
		file, kind, name string
		partial          string // link
		want             explain.CauseID
	}{
		{"handler-offline-on-one-node", "configuration", "camera", explain.LinkHandler, explain.HandlerOffline},
		{"handler-offline", "pod", "node-a-camera-8120fe-pod", explain.LinkHandler, explain.HandlerOffline},
		{"tainted-node", "configuration", "camera", explain.LinkActive, explain.NodeWithoutAkri},
		{"removed-node", "configuration", "camera", explain.LinkActive, explain.NodeWithoutAkri},
		{"node-not-reporting", "configuration", "camera", explain.LinkActive, explain.NodeNotReporting},
		{"malformed-slot", "configuration", "camera", explain.LinkInstances, explain.SlotMalformed},
		{"service-not-ready", "configuration", "camera", explain.LinkServices, explain.ServiceNotReady},
		{"service-crashes", "configuration", "camera", explain.LinkServices, explain.ServiceNotReady},
		{"service-images", "configuration", "camera", explain.LinkServices, explain.ImageNotPulled},
		{"version-skew", "configuration", "camera", explain.LinkServices, explain.VersionSkew},
		{"capacity-used", "instance", "camera-8120fe", explain.LinkSlots, explain.CapacityUsed},
		{"dra-driver-missing", "configuration", "camera", explain.LinkResource, explain.DriverMissing},
		{"dra-mixed-forms", "configuration", "camera", explain.LinkResource, explain.ResourceNotAdvertised},
	} {
		t.Run(c.file+"/"+c.kind, func(t *testing.T) {
			e := explainObject(load(t, c.file), c.kind, c.name)
			golden(t, c.file+"."+c.kind, e)
			require.Nil(t, e.Broken())
			var found []explain.CauseID
			for _, link := range e.Links {
				if link.State == explain.Partial && link.Name == c.partial {
					found = append(found, link.Causes[0].ID)
				}
			}
			require.Equal(t, []explain.CauseID{c.want}, found)
		})
	}
}

// TestHealthy checks that a chain without problems has no broken link.
func TestHealthy(t *testing.T) {
	for _, c := range []struct{ file, kind, name string }{
		{"healthy", "configuration", "camera"}, {"healthy", "pod", "node-a-camera-8120fe-pod"},
		{"dra", "configuration", "camera"}, {"dra", "pod", "any"}, {"dra-two-devices", "pod", "any"}, {"dra-claimed", "pod", "viewer"}, {"dra-agent", "pod", "any"},
	} {
		e := explainObject(load(t, c.file), c.kind, c.name)
		golden(t, c.file+"."+c.kind, e)
		for _, link := range e.Links {
			require.Equal(t, explain.OK, link.State, link.Name)
		}
	}
}

// Without an evaluation of selectors nothing follows from them.
func TestSelectorsAreNotEvaluated(t *testing.T) {
	s := load(t, "dra-no-device-selected")
	s.Selectors = nil
	e := explain.Pod(s, "default", "viewer")
	require.Equal(t, explain.Unschedulable, e.Cause().ID)
}

func TestMissingObjects(t *testing.T) {
	s := fixture.Load(t, "testdata/healthy.yaml")
	for _, kind := range []string{"configuration", "instance", "pod"} {
		e := explainObject(s, kind, "absent")
		require.Equal(t, explain.NotFound, e.Cause().ID, kind)
	}
	e := explain.Configuration(s, "other", "camera")
	require.Contains(t, e.Cause().Message, "there is one in the namespace default")
}

// Nothing follows from objects that the user may not list.
func TestUnreadable(t *testing.T) {
	s := fixture.Load(t, "testdata/healthy.yaml")
	s.Nodes, s.Pods, s.DaemonSets, s.Deployments = nil, nil, nil, nil
	s.Unreadable = []string{"nodes", "pods", "daemonsets", "deployments"}
	e := explain.Configuration(s, "default", "camera")
	require.Nil(t, e.Broken())
}

func TestNotInstalled(t *testing.T) {
	e := explain.Configuration(&explain.Snapshot{}, "default", "camera")
	require.Equal(t, explain.NotInstalled, e.Cause().ID)
}

func golden(t *testing.T, name string, value any) {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	fixture.Golden(t, filepath.Join("testdata", name+".golden"), string(text), *update)
}
