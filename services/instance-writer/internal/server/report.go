package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
)

// maxUnanswered bounds how many reports of one node wait for their outcome; then its stream is not read on.
const maxUnanswered = 256

const (
	// configurationWithin is how long a report waits for the watch to bring its Configuration.
	configurationWithin = 5 * time.Second
	// outcomeWithin is less than a node waits for an answer before it takes the writer for dead.
	outcomeWithin = 20 * time.Second
)

type reportStream = grpc.BidiStreamingServer[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]

// ReportDevices takes a node's reports in as they come, and answers each once it has an outcome: one that takes long
// holds up no other.
func (s *Server) ReportDevices(stream reportStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive report: %w", err)
	}
	if err := checkReport(first, first.GetNode()); err != nil {
		return toStatus(err)
	}
	own := s.Reports.Open(first.GetNode())
	defer s.Reports.Close(own)
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	conversation := &conversation{
		Server: s, stream: stream, own: own, node: first.GetNode(),
		room: make(chan struct{}, maxUnanswered), answers: make(chan *instancev1.ReportDevicesResponse),
	}
	// When the writer is the first to fail, the reader's Recv ends with the stream, and that with this call.
	read := make(chan error, 1)
	go func() { read <- conversation.read(ctx, cancel, first) }()
	return conversation.write(ctx, read)
}

// conversation is one stream.
type conversation struct {
	*Server
	stream reportStream
	own    *reports.Stream
	node   string
	// room has an element for each report that waits for its outcome.
	room    chan struct{}
	answers chan *instancev1.ReportDevicesResponse
}

// read returns nil when all that the node sent before it closed its side is answered.
func (c *conversation) read(ctx context.Context, fail context.CancelCauseFunc, request *instancev1.ReportDevicesRequest) error {
	var handling sync.WaitGroup
	for sequence := uint64(1); ; sequence++ {
		if err := checkReport(request, c.node); err != nil {
			return toStatus(err)
		}
		select {
		case c.room <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		current := request
		handling.Go(func() {
			if err := c.handle(ctx, current, sequence); err != nil {
				fail(err)
			}
		})
		next, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			handling.Wait()
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive report: %w", err)
		}
		request = next
	}
}

// handle takes one report in and hands its answer over.
func (c *conversation) handle(ctx context.Context, request *instancev1.ReportDevicesRequest, sequence uint64) error {
	response, err := c.outcome(ctx, request, sequence)
	if err != nil {
		return err
	}
	select {
	case c.answers <- response:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write sends answers until there is nothing more to say.
func (c *conversation) write(ctx context.Context, read <-chan error) error {
	for {
		select {
		case <-c.Stopping:
			return errStopping
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-read:
			return err
		case response := <-c.answers:
			if err := c.stream.Send(response); err != nil {
				return fmt.Errorf("send response: %w", err)
			}
			<-c.room
		}
	}
}

// reasonForm is what the API server accepts as reason of a condition.
var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)

var handlerStatuses = []string{"Waiting", "Active", "Offline"}

func checkReport(request *instancev1.ReportDevicesRequest, node string) error {
	switch {
	case request.GetNode() == "" || request.GetNamespace() == "" || request.GetConfiguration() == "" || request.GetConfigurationUid() == "":
		return invalidError("a report must name its node and the namespace, name and uid of its Configuration")
	case request.GetNode() != node:
		return invalidError(fmt.Sprintf("this stream is that of node %q, not of %q", node, request.GetNode()))
	}
	for _, handler := range request.GetHandlers() {
		if !slices.Contains(handlerStatuses, handler.GetStatus()) {
			return invalidError(fmt.Sprintf("handler status %q: want one of %q", handler.GetStatus(), handlerStatuses))
		}
	}
	for _, problem := range request.GetProblems() {
		if !reasonForm.MatchString(problem.GetReason()) {
			return invalidError(fmt.Sprintf("problem reason %q: want CamelCase", problem.GetReason()))
		}
	}
	return nil
}

// outcome stores a report and waits for what becomes of it; one on a Configuration that does not exist is void.
func (c *conversation) outcome(ctx context.Context, request *instancev1.ReportDevicesRequest, sequence uint64) (*instancev1.ReportDevicesResponse, error) {
	key := types.NamespacedName{Namespace: request.GetNamespace(), Name: request.GetConfiguration()}
	response := &instancev1.ReportDevicesResponse{Revision: request.GetRevision()}
	exists, err := c.Cluster.Await(ctx, key, types.UID(request.GetConfigurationUid()), configurationWithin)
	if err != nil {
		return nil, err
	}
	if !exists {
		return response, nil
	}
	report, invalid := parse(request)
	report.Sequence = sequence
	response.Refusals = invalid
	wait, ok := c.Reconciler.Report(c.own, c.node, key, report)
	if !ok {
		return nil, status.Errorf(codes.Aborted, "a newer stream of node %q has taken over", c.node)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, outcomeWithin, errLate)
	defer cancel()
	err = wait.Wait(waiting)
	switch {
	case errors.Is(err, errLate):
		response.Refusals = append(response.Refusals, late(request)...)
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for _, refusal := range c.Reports.Refusals(c.node, key) {
		response.Refusals = append(response.Refusals, &instancev1.Refusal{
			Instance: akriv0.InstanceName(key.Name, akriv0.Digest(refusal.ID, c.node, refusal.Shared)),
			DeviceId: refusal.ID, Reason: refusal.Reason, Message: refusal.Message,
		})
	}
	return response, nil
}

// errLate: an outcome is not known in time.
var errLate = errors.New("not written yet, and tried on")

// late says of the devices of a report that they are not known to be written.
func late(request *instancev1.ReportDevicesRequest) []*instancev1.Refusal {
	var all []*instancev1.Refusal
	for _, device := range request.GetDevices() {
		all = append(all, &instancev1.Refusal{Instance: device.GetInstance(), DeviceId: device.GetId(), Reason: notWritten, Message: errLate.Error()})
	}
	return all
}

// parse turns a message into a report and tells which of its devices cannot be used.
func parse(request *instancev1.ReportDevicesRequest) (*reports.Report, []*instancev1.Refusal) {
	report := &reports.Report{
		UID: types.UID(request.GetConfigurationUid()), Generation: request.GetConfigurationGeneration(), Complete: request.GetComplete(), Devices: map[string][]merge.Device{},
	}
	for _, handler := range request.GetHandlers() {
		status := akriv0.HandlerStatus{Name: handler.GetName(), Endpoint: handler.GetEndpoint(), Status: akriv0.HandlerState(handler.GetStatus())}
		if handler.GetOfflineSince() != nil {
			// What the API server keeps has whole seconds.
			status.OfflineSince = &metav1.Time{Time: handler.GetOfflineSince().AsTime().Truncate(time.Second)}
		}
		report.Handlers = append(report.Handlers, status)
	}
	for _, problem := range request.GetProblems() {
		report.Problems = append(report.Problems, akriv0.Problem{Reason: problem.GetReason(), Message: problem.GetMessage()})
	}
	var invalid []*instancev1.Refusal
	for _, device := range request.GetDevices() {
		if message := unusable(request, device); message != "" {
			invalid = append(invalid, &instancev1.Refusal{Instance: device.GetInstance(), DeviceId: device.GetId(), Reason: akriv0.ReasonInvalidDevice, Message: message})
			report.Problems = append(report.Problems, akriv0.Problem{Reason: akriv0.ReasonInvalidDevice, Message: message})
			continue
		}
		report.Devices[device.GetInstance()] = append(report.Devices[device.GetInstance()], merge.Device{
			Node: request.GetNode(), ID: device.GetId(), Shared: device.GetShared(), Properties: device.GetProperties(), Complete: request.GetComplete(),
		})
	}
	return report, invalid
}

// unusable says why a device cannot become an Instance.
func unusable(request *instancev1.ReportDevicesRequest, device *instancev1.Device) string {
	if device.GetId() == "" {
		return "a device has an empty id"
	}
	want := akriv0.InstanceName(request.GetConfiguration(), akriv0.Digest(device.GetId(), request.GetNode(), device.GetShared()))
	if device.GetInstance() != want {
		return fmt.Sprintf("device %q is called %q: want %q", device.GetId(), device.GetInstance(), want)
	}
	return ""
}
