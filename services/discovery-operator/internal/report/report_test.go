package report

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/discovery-operator/internal/inventory"
)

// A report that instance-writer would refuse does not end the stream of the other Configurations.
func TestReportIsNeverTooLarge(t *testing.T) {
	s := &reportStream{Reporter: &Reporter{node: "node-a"}}
	report := &instancev1.ReportDevicesRequest{Namespace: "default", Configuration: "cameras", Complete: true}
	for i := range 1000 {
		report.Devices = append(report.Devices, &discoveryv1.Device{Id: fmt.Sprint(i), Properties: map[string]string{"A": strings.Repeat("x", 4000)}})
	}
	require.Len(t, s.request(report).GetDevices(), 1000)
	report.Devices = append(report.Devices, report.GetDevices()...)
	sent := s.request(report)
	require.Less(t, proto.Size(sent), maxReportBytes)
	require.Empty(t, sent.GetDevices())
	require.False(t, sent.GetComplete(), "no device is removed")
	require.Contains(t, sent.GetProblems()[0].GetMessage(), "the 2000 devices of node node-a have")
	require.Len(t, report.GetDevices(), 2000, "the report itself does not change")

	report.Devices = nil
	for i := range 10_000 {
		device := &discoveryv1.Device{Id: fmt.Sprint(i), Properties: map[string]string{}}
		for property := range 8 {
			device.Properties[fmt.Sprint("P", property)] = ""
		}
		report.Devices = append(report.Devices, device)
	}
	require.Len(t, s.request(report).GetDevices(), 10_000)
	report.Devices = append(report.Devices, report.GetDevices()[:2000]...)
	sent = s.request(report)
	require.Empty(t, sent.GetDevices())
	require.Contains(t, sent.GetProblems()[0].GetMessage(), "the 12000 devices of node node-a have 108000 properties and paths")
}

// sentReports is a stream that keeps what was sent.
type sentReports struct {
	clientStream
	requests []*instancev1.ReportDevicesRequest
}

func (s *sentReports) Send(request *instancev1.ReportDevicesRequest) error {
	s.requests = append(s.requests, request)
	return nil
}

// The report after a list has the span of the list, whatever else changes before it is sent. Later
// reports do not have it.
func TestReportsHaveTheSpanOfTheirList(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		stream := &sentReports{}
		reporter := &Reporter{node: "node-a", refusals: map[string]string{}, traced: map[string]time.Time{}}
		s := &reportStream{Reporter: reporter, stream: stream, inFlight: map[uint64]sentReport{}}
		entry := &inventory.Entry{Key: "default/cameras", Report: &instancev1.ReportDevicesRequest{}}
		acknowledged := "" // the newest list of the acknowledged report
		for step := range 100 {
			next := *entry
			switch random.IntN(4) {
			case 0: // a list
				next.List = inventory.Span{
					Traceparent: fmt.Sprintf("00-%032x-%016x-01", step+1, step+1),
					Started:     time.Unix(int64(step), 0),
				}
				entry = &next
			case 1: // another change
				entry = &next
			case 2:
				for revision, sent := range s.inFlight {
					s.acknowledge(&instancev1.ReportDevicesResponse{Revision: revision})
					acknowledged = sent.entry.List.Traceparent
				}
			case 3:
				s = &reportStream{Reporter: reporter, stream: stream, inFlight: map[uint64]sentReport{}}
			}
			before := len(stream.requests)
			if random.IntN(2) == 0 {
				require.NoError(t, s.send(t.Context(), inventory.Snapshot{Ready: true, Entries: []*inventory.Entry{entry}}))
			}
			for _, request := range stream.requests[before:] {
				want := entry.List.Traceparent
				if want == acknowledged {
					want = ""
				}
				require.Equal(t, want, request.GetTraceparent(), "seed %d, step %d", seed, step)
			}
		}
		require.Greater(t, len(stream.requests), 20)
	}
}
