// Package report sends the inventory of the node to the instance-writer.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	"akri.sh/libs/tracing"
	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/discovery-operator/internal/inventory"
)

const (
	maxRetryDelay = 5 * time.Second
	// maxInFlight limits the reports without response: the API server sets the pace.
	maxInFlight = 64
	// responseTimeout is the time after which the stream is opened again.
	responseTimeout = 30 * time.Second
	// maxReportBytes is the size of a request that instance-writer accepts, less its overhead.
	maxReportBytes = 4<<20 - 1<<10
	// maxReportValues is the number of values in a request that instance-writer accepts, less some
	// for what a report without devices has.
	maxReportValues = 100_000 - 1<<10
)

var errNoResponse = errors.New("instance-writer has not responded for " + responseTimeout.String())

type clientStream = grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]

// Reporter keeps one ReportDevices stream to the instance-writer open. Discovery never waits for
// it.
type Reporter struct {
	log       *zap.Logger
	node      string
	inventory *broadcast.Value[inventory.Snapshot]
	client    instancev1.InstanceServiceClient

	refusals map[string]string    // the logged refusals, by key of the Configuration
	traced   map[string]time.Time // when the newest list of the acknowledged report came, by key
}

// New returns a Reporter. It starts nothing.
func New(log *zap.Logger, node string, snapshots *broadcast.Value[inventory.Snapshot], conn grpc.ClientConnInterface) *Reporter {
	return &Reporter{
		log: log, node: node, inventory: snapshots, client: instancev1.NewInstanceServiceClient(conn),
		refusals: map[string]string{}, traced: map[string]time.Time{},
	}
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	rpc.Keep(ctx, r.log, maxRetryDelay, func(ctx context.Context, healthy func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := r.client.ReportDevices(ctx)
		if err != nil {
			return fmt.Errorf("open report stream: %w", err)
		}
		responses := make(chan *instancev1.ReportDevicesResponse)
		ended := make(chan error, 1)
		go func() { ended <- receive(ctx, stream, responses) }()
		s := &reportStream{Reporter: r, stream: stream, inFlight: map[uint64]sentReport{}}
		err = s.run(ctx, responses, ended, healthy)
		for _, sent := range s.inFlight {
			tracing.End(sent.span, err)
		}
		return err
	})
}

func receive(ctx context.Context, stream clientStream, responses chan<- *instancev1.ReportDevicesResponse) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive response: %w", err)
		}
		select {
		case responses <- response:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportStream is the state of one stream. A new stream sends all entries.
type reportStream struct {
	*Reporter
	stream   clientStream
	revision uint64
	sent     map[string]*inventory.Entry // the last entry sent, by key
	inFlight map[uint64]sentReport       // reports without response, by revision
}

// sentReport is a report without response.
type sentReport struct {
	entry *inventory.Entry
	span  trace.Span
}

func (s *reportStream) run(
	ctx context.Context, responses <-chan *instancev1.ReportDevicesResponse, ended <-chan error, healthy func(),
) error {
	timeout := time.NewTimer(responseTimeout)
	defer timeout.Stop()
	for {
		snapshot, changed := s.inventory.Get()
		if err := s.send(ctx, snapshot); errors.Is(err, io.EOF) {
			return cause(responses, ended) // instance-writer has ended the stream
		} else if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case response := <-responses:
			healthy()
			s.acknowledge(response)
			timeout.Reset(responseTimeout)
		case <-changed:
			if len(s.inFlight) == 0 {
				timeout.Reset(responseTimeout)
			}
		case <-timeout.C:
			if len(s.inFlight) > 0 {
				return errNoResponse
			}
		}
	}
}

// cause returns the error with which a stream has ended. Without it the connection would not know
// that the replica refuses the stream.
func cause(responses <-chan *instancev1.ReportDevicesResponse, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-responses:
		}
	}
}

// send sends the entries that changed since they were sent. It sends at most one report of a
// Configuration at a time, so that the next report has the newest entry.
func (s *reportStream) send(ctx context.Context, snapshot inventory.Snapshot) error {
	if !snapshot.Ready {
		return nil
	}
	waiting := map[string]bool{}
	for _, report := range s.inFlight {
		waiting[report.entry.Key] = true
	}
	sent := make(map[string]*inventory.Entry, len(snapshot.Entries)) // without deleted Configurations
	for _, entry := range snapshot.Entries {
		sent[entry.Key] = s.sent[entry.Key]
		if sent[entry.Key] == entry || waiting[entry.Key] || len(s.inFlight) >= maxInFlight {
			continue
		}
		s.revision++
		traced, span := s.startSpan(ctx, entry)
		s.inFlight[s.revision] = sentReport{entry, span}
		request := s.request(entry.Report)
		request.Traceparent = tracing.Parent(traced)
		if err := s.stream.Send(request); err != nil {
			return fmt.Errorf("send report: %w", err)
		}
		sent[entry.Key] = entry
	}
	s.sent = sent
	maps.DeleteFunc(s.refusals, func(key, _ string) bool { _, exists := sent[key]; return !exists })
	maps.DeleteFunc(s.traced, func(key string, _ time.Time) bool { _, exists := sent[key]; return !exists })
	return nil
}

// startSpan starts a span for the first report after a list. That report may contain other changes
// that were made before it was sent. It is sent again on each new stream until it is acknowledged.
func (s *reportStream) startSpan(ctx context.Context, entry *inventory.Entry) (context.Context, trace.Span) {
	if entry.List.Started.After(s.traced[entry.Key]) {
		ctx = tracing.WithParent(ctx, entry.List.Traceparent)
	}
	return tracing.Child(ctx, "report devices",
		attribute.String("akri.configuration", entry.Key), attribute.Int("akri.devices", len(entry.Report.GetDevices())))
}

func (s *reportStream) request(report *instancev1.ReportDevicesRequest) *instancev1.ReportDevicesRequest {
	request := &instancev1.ReportDevicesRequest{
		Node: s.node, Revision: s.revision,
		Namespace: report.GetNamespace(), Configuration: report.GetConfiguration(),
		ConfigurationUid: report.GetConfigurationUid(), ConfigurationGeneration: report.GetConfigurationGeneration(),
		Complete: report.GetComplete(), Answered: report.GetAnswered(), Devices: report.GetDevices(),
		Handlers: report.GetHandlers(), Problems: report.GetProblems(),
	}
	if size := proto.Size(request); size > maxReportBytes || valuesOf(request) > maxReportValues {
		withoutDevices(request, size)
	}
	return request
}

// valuesOf returns the number of devices with their properties and paths.
func valuesOf(request *instancev1.ReportDevicesRequest) (values int) {
	for _, device := range request.GetDevices() {
		values += 1 + len(device.GetProperties()) + len(device.GetMounts()) + len(device.GetDeviceNodes())
	}
	return values
}

// withoutDevices makes a report that is too large one that changes no device and names the problem.
func withoutDevices(request *instancev1.ReportDevicesRequest, size int) {
	message := fmt.Sprintf("the %d devices of node %s have %d bytes of ids, properties and paths: must be at most %d bytes; "+
		"no device was added or removed", len(request.GetDevices()), request.GetNode(), size, maxReportBytes)
	if size <= maxReportBytes {
		message = fmt.Sprintf("the %d devices of node %s have %d properties and paths, with the devices: must be at most %d; "+
			"no device was added or removed", len(request.GetDevices()), request.GetNode(), valuesOf(request), maxReportValues)
	}
	request.Devices, request.Complete, request.Answered = nil, false, true
	request.Problems = append(slices.Clone(request.GetProblems()), &instancev1.Problem{Reason: akriv0.ReasonInvalidDevice, Message: message})
}

// acknowledge logs the refusals of a response, unless they are those of the last response: a new
// stream gets all refusals again.
func (s *reportStream) acknowledge(response *instancev1.ReportDevicesResponse) {
	report, sent := s.inFlight[response.GetRevision()]
	if !sent {
		return
	}
	delete(s.inFlight, response.GetRevision())
	tracing.End(report.span, nil)
	configuration := report.entry.Key
	s.traced[configuration] = report.entry.List.Started
	refusals := fmt.Sprint(response.GetRefusals())
	if s.refusals[configuration] == refusals {
		return
	}
	s.refusals[configuration] = refusals
	for _, refusal := range response.GetRefusals() {
		s.log.Warn("instance-writer refused a device", zap.String("configuration", configuration),
			zap.String("instance", refusal.GetInstance()), zap.String("device_id", refusal.GetDeviceId()),
			zap.String("reason", refusal.GetReason()), zap.String("message", refusal.GetMessage()))
	}
}
