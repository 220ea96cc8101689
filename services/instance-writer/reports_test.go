package instancewriter_test

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// An Instance that cannot be written does not delay the report of another Configuration.
func TestFailingWriteDelaysNoOtherReport(t *testing.T) {
	f := newFixture(t, 1, 1)
	other := newFixture(t, 1, 0)
	apiProxy := newProxy(t)
	s := openReports(t, startAt(t, apiProxy.URL, grace))
	var failing atomic.Bool
	apiProxy.rejectIf(func(r *http.Request) bool {
		return r.Method == http.MethodPost && path.Base(r.URL.Path) == "instances" && failing.Load()
	})
	failing.Store(true)
	blocked, unaffected := f.newReport(f.nodes[0], f.device("", "foo", true)), other.newReport(f.nodes[0])
	blocked.Revision, unaffected.Revision = 1, 2
	require.NoError(t, s.Send(blocked))
	require.NoError(t, s.Send(unaffected))
	response, err := s.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 2, response.GetRevision())
	failing.Store(false)
	response, err = s.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 1, response.GetRevision())
	require.Empty(t, response.GetRefusals())
	require.False(t, f.deleted(f.instanceName("foo")))
}

// A report is answered after its write, also if the Instance has just changed: the watch event of
// that change must not make the report a correction, which would be delayed.
func TestReportIsAnsweredAfterItsWrite(t *testing.T) {
	f := newFixture(t, 1, 1)
	s, node := openReports(t, start(t, grace)), f.nodes[0]
	device := f.device(node, "foo", false)
	for range 300 {
		s.send(f.newReport(node, device))
		require.False(t, f.deleted(device.GetInstance()))
		s.send(f.newReport(node))
		require.True(t, f.deleted(device.GetInstance()))
	}
}

// Ready is True before a node has reported on the spec. The conditions about reports are Unknown.
func TestConditionsBeforeReport(t *testing.T) {
	f := newFixture(t, 1, 1)
	r := start(t, grace)
	f.eventually("ready", func() bool {
		return meta.IsStatusConditionTrue(f.status().Conditions, akriv0.ConditionReady) && f.status().ObservedGeneration == 1
	})
	s := openReports(t, r)
	accepted := func() metav1.Condition {
		return *cmp.Or(meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionDetailsAccepted), &metav1.Condition{})
	}
	waiting := f.newReport(f.nodes[0])
	waiting.Complete, waiting.ConfigurationGeneration = false, 1
	s.send(waiting)
	f.eventually("status", func() bool { return accepted().Reason != "" })
	require.Equal(t, metav1.ConditionUnknown, accepted().Status)
	require.Zero(t, accepted().ObservedGeneration)
	done := f.newReport(f.nodes[0])
	done.ConfigurationGeneration = 1
	s.send(done)
	f.eventually("accepted", func() bool { return accepted().Status == metav1.ConditionTrue && accepted().ObservedGeneration == 1 })
}

func TestEventsOfDevices(t *testing.T) {
	f := newFixture(t, 1, 2)
	streams := f.reportShared("foo", start(t, grace))
	on := func(node string) string { return f.instanceName("foo") + " on " + node }
	f.eventually("devices added", func() bool { // in one Event or, on a slow machine, in two
		added := strings.Split(strings.Join(f.events(akriv0.ReasonDeviceAdded), ", "), ", ")
		return slices.Equal(slices.Sorted(slices.Values(added)), []string{on(f.nodes[0]), on(f.nodes[1])})
	})
	streams[1].send(f.newReport(f.nodes[1]))
	f.eventually("device removed", func() bool { return slices.Equal(f.events(akriv0.ReasonDeviceRemoved), []string{on(f.nodes[1])}) })
	for _, event := range append(f.listEvents(akriv0.ReasonDeviceAdded), f.listEvents(akriv0.ReasonDeviceRemoved)...) {
		require.Equal(t, f.instanceName("foo"), event.Annotations[akriv0.DevicesAnnotation])
	}
}

// A problem that becomes another problem of the same condition creates another Event.
func TestEventPerReason(t *testing.T) {
	f := newFixture(t, 1, 1)
	s := openReports(t, start(t, grace))
	for _, reason := range []string{akriv0.ReasonPropertyNotFound, akriv0.ReasonPropertyForbidden} {
		report := f.newReport(f.nodes[0])
		report.Problems = []*instancev1.Problem{{Reason: reason, Message: "about " + reason}}
		s.send(report)
		f.eventually("event", func() bool {
			return slices.Equal(f.events(reason), []string{"DetailsAccepted is False: " + f.nodes[0] + ": about " + reason})
		})
	}
}

// Reports on Configurations that do not exist cause few requests to the API server.
func TestReportsOnAbsentConfigurations(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	var lookups atomic.Int64
	apiProxy.rejectIf(func(r *http.Request) bool {
		if strings.HasPrefix(path.Base(r.URL.Path), "absent") {
			lookups.Add(1)
		}
		return false
	})
	s := openReports(t, startAt(t, apiProxy.URL, grace))
	absent := f.newReport(f.nodes[0])
	absent.Configuration = "absent"
	for range 100 {
		require.Empty(t, s.send(absent))
	}
	require.EqualValues(t, 1, lookups.Load(), "a Configuration is looked up once")

	for i := range 200 {
		absent.Configuration = fmt.Sprintf("absent-%d", i)
		require.NoError(t, s.Send(absent))
	}
	err := error(nil)
	for err == nil {
		_, err = s.Recv()
	}
	require.Equal(t, codes.Unavailable, status.Code(err), err)
	require.ErrorContains(t, err, "too many reports on unknown Configurations")
	require.Less(t, lookups.Load(), int64(200))
	openReports(t, startAt(t, apiProxy.URL, grace)).send(f.newReport(f.nodes[0]))
}

// A node reports times that the API server does not store in a status. Its report is refused, so
// that the status still changes with those of other nodes.
func TestTimesThatAreNotStored(t *testing.T) {
	f := newFixture(t, 1, 2)
	r := start(t, grace)
	honest := openReports(t, r)
	first, last := &timestamppb.Timestamp{Seconds: -62135596799}, &timestamppb.Timestamp{Seconds: 253402300799}
	before, after := &timestamppb.Timestamp{Seconds: first.GetSeconds() - 1}, &timestamppb.Timestamp{Seconds: last.GetSeconds() + 1}

	for i, c := range []struct {
		offlineSince, since, until *timestamppb.Timestamp
		code                       codes.Code
	}{
		{first, first, first, codes.OK},
		{last, last, last, codes.OK},
		{after, last, last, codes.InvalidArgument},
		{last, after, last, codes.InvalidArgument},
		{last, last, after, codes.InvalidArgument},
		{before, first, first, codes.InvalidArgument}, // null in JSON
	} {
		hostile := openReports(t, r)
		report := f.newReport(f.nodes[1])
		report.Handlers[0].OfflineSince = c.offlineSince
		report.Problems = []*instancev1.Problem{{Reason: "Any", Wait: &instancev1.Wait{Since: c.since, Until: c.until}}}
		require.NoError(t, hostile.Send(report))
		_, err := hostile.Recv()

		problem := &instancev1.Problem{Reason: "Any", Message: fmt.Sprint(i)}
		report = f.newReport(f.nodes[0])
		report.Problems = []*instancev1.Problem{problem}
		honest.send(report)
		f.eventually(fmt.Sprintf("status after %v", c), func() bool {
			return slices.ContainsFunc(f.status().Nodes, func(node akriv0.NodeStatus) bool {
				return node.Name == f.nodes[0] && len(node.Problems) == 1 && node.Problems[0].Message == problem.GetMessage()
			})
		})
		require.Equal(t, c.code, status.Code(err), "%v: %v", c, err)
	}
}
