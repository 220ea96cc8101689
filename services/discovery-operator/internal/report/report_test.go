package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
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
}
