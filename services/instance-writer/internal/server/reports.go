package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/tracing"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/reports"
)

const (
	// maxUnanswered is the number of unanswered reports of a stream at which the server stops
	// receiving.
	maxUnanswered = 256
	// maxUnansweredBytes limits the memory of the reports of a stream that are not answered.
	// valueBytes is what a device, a property, a handler or a problem takes besides its text.
	maxUnansweredBytes = 4 << 20
	valueBytes         = 128
	// configurationTimeout is how long a report waits until the watch delivers its Configuration.
	configurationTimeout = 5 * time.Second
	// writeTimeout is shorter than the time after which a node reopens an unanswered stream.
	writeTimeout = 20 * time.Second
)

// errLate means that the outcome of a report is not known within writeTimeout.
var errLate = errors.New("not written yet; the write is being retried")

// reportStream is a ReportDevices stream.
type reportStream struct {
	*Server
	grpc.BidiStreamingServer[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
	node    string
	reports *reports.Stream
	// unanswered has an element for each report without a response.
	unanswered chan struct{}
	bytes      *semaphore.Weighted
	responses  chan *instancev1.ReportDevicesResponse
}

// ReportDevices processes reports concurrently and responds to each when its outcome is known, so
// that a slow report does not delay others.
func (s *Server) ReportDevices(
	stream grpc.BidiStreamingServer[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse],
) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	session := &reportStream{
		Server: s, BidiStreamingServer: stream,
		unanswered: make(chan struct{}, maxUnanswered), bytes: semaphore.NewWeighted(maxUnansweredBytes),
		responses: make(chan *instancev1.ReportDevicesResponse),
	}
	// Recv fails when this call returns, which ends the goroutine.
	received := make(chan error, 1)
	go func() { received <- session.receiveAll(ctx, cancel) }()
	return session.respond(ctx, received)
}

// receiveAll processes reports until the node closes its side of the stream. It then waits until
// all are answered and returns nil.
func (s *reportStream) receiveAll(ctx context.Context, cancel context.CancelCauseFunc) error {
	var processing sync.WaitGroup
	for sequence := uint64(1); ; sequence++ {
		request, err := s.Recv()
		if errors.Is(err, io.EOF) {
			processing.Wait()
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive report: %w", err)
		}
		if s.reports == nil {
			s.node = request.GetNode()
		}
		if err := validateReport(request, s.node); err != nil {
			return toStatus(err)
		}
		if s.reports == nil {
			s.reports = s.Reports.Open(s.node, cancel)
			defer s.Reports.Close(s.reports)
		}
		select {
		case s.unanswered <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		size := int64(min(decodedBytes(request), maxUnansweredBytes))
		if s.bytes.Acquire(ctx, size) != nil {
			return context.Cause(ctx)
		}
		processing.Go(func() {
			defer s.bytes.Release(size)
			if err := s.process(ctx, request, sequence); err != nil {
				cancel(err)
			}
		})
	}
}

// decodedBytes is an estimate of the memory of a report.
func decodedBytes(request *instancev1.ReportDevicesRequest) int {
	bytes := proto.Size(request) + valueBytes*(len(request.GetDevices())+len(request.GetHandlers())+len(request.GetProblems()))
	for _, device := range request.GetDevices() {
		bytes += valueBytes * (len(device.GetProperties()) + len(device.GetMounts()) + len(device.GetDeviceNodes()))
	}
	for _, problem := range request.GetProblems() {
		bytes += valueBytes * len(problem.GetEvidence())
	}
	return bytes
}

// process hands the response to one report to respond.
func (s *reportStream) process(ctx context.Context, request *instancev1.ReportDevicesRequest, sequence uint64) error {
	received := time.Now()
	traced, span := tracing.Child(tracing.WithParent(ctx, request.GetTraceparent()), "apply report",
		attribute.String("akri.node", s.node), attribute.String("akri.configuration", request.GetNamespace()+"/"+request.GetConfiguration()),
		attribute.Int("akri.devices", len(request.GetDevices())))
	response, err := s.apply(traced, request, sequence)
	tracing.End(span, err)
	if err != nil {
		return err
	}
	s.ReportSeconds.Observe(time.Since(received).Seconds())
	select {
	case s.responses <- response:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// respond sends responses until the stream ends.
func (s *reportStream) respond(ctx context.Context, received <-chan error) error {
	lost := s.ConnectionLost()
	for {
		select {
		case <-s.Stopping:
			return errStopping
		case <-lost:
			return errConnectionLost
		case <-ctx.Done():
			return endStatus(context.Cause(ctx))
		case err := <-received:
			return endStatus(err)
		case response := <-s.responses:
			if err := s.Send(response); err != nil {
				return fmt.Errorf("send response: %w", err)
			}
			<-s.unanswered
		}
	}
}

// reasonPattern matches the reasons of conditions that the API server accepts.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,254}[A-Za-z0-9_])?$`)

var handlerStates = []akriv0.HandlerState{akriv0.HandlerWaiting, akriv0.HandlerActive, akriv0.HandlerOffline}

func validateReport(request *instancev1.ReportDevicesRequest, node string) error {
	switch {
	case slices.Contains([]string{request.GetNode(), request.GetNamespace(), request.GetConfiguration(), request.GetConfigurationUid()}, ""):
		return invalidRequestError("node, namespace, configuration and configuration_uid of a report must not be empty")
	case request.GetNode() != node:
		return invalidRequestError(fmt.Sprintf("report of node %q on the stream of node %q", request.GetNode(), node))
	}
	for _, handler := range request.GetHandlers() {
		if !slices.Contains(handlerStates, akriv0.HandlerState(handler.GetStatus())) {
			return invalidRequestError(fmt.Sprintf("handler status %q must be one of %q", handler.GetStatus(), handlerStates))
		}
		if !isStored(handler.GetOfflineSince()) {
			return invalidRequestError("offline_since of a handler " + storedTimes)
		}
	}
	for _, problem := range request.GetProblems() {
		if !reasonPattern.MatchString(problem.GetReason()) {
			return invalidRequestError(fmt.Sprintf("problem reason %q must be CamelCase", problem.GetReason()))
		}
		if !isStored(problem.GetWait().GetSince()) || !isStored(problem.GetWait().GetUntil()) {
			return invalidRequestError("since and until of a wait " + storedTimes)
		}
	}
	return nil
}

const storedTimes = "must be times from the year 1 to 9999, and not the first second of them"

// isStored reports whether the API server accepts the time in the status of a Configuration. With
// another one it would refuse the entries of all nodes. The first second is null in JSON.
func isStored(reported *timestamppb.Timestamp) bool {
	if reported == nil {
		return true
	}
	return reported.CheckValid() == nil && !reported.AsTime().Truncate(time.Second).IsZero()
}

// apply stores a report and waits for its outcome. It ignores a report on a Configuration that does
// not exist.
func (s *reportStream) apply(
	ctx context.Context, request *instancev1.ReportDevicesRequest, sequence uint64,
) (*instancev1.ReportDevicesResponse, error) {
	key := types.NamespacedName{Namespace: request.GetNamespace(), Name: request.GetConfiguration()}
	response := &instancev1.ReportDevicesResponse{Revision: request.GetRevision()}
	exists, err := s.Cluster.WaitForConfiguration(ctx, key, types.UID(request.GetConfigurationUid()), configurationTimeout)
	if errors.Is(err, cluster.ErrBusy) {
		return nil, toStatus(err)
	}
	if err != nil {
		return nil, err
	}
	if !exists {
		return response, nil
	}
	report, invalid := parseReport(request)
	report.Sequence = sequence
	response.Refusals = invalid
	waiter, ok := s.Reconciler.Report(ctx, s.reports, s.node, key, report)
	if !ok {
		return nil, status.Errorf(codes.Aborted, "node %q has opened a newer stream", s.node)
	}
	for _, device := range report.Excess {
		response.Refusals = append(response.Refusals, refuse(device.Value(), akriv0.ReasonTooManyDevices, ""))
	}
	report.Excess = nil
	waitCtx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errLate)
	defer cancel()
	err = waiter.Wait(waitCtx)
	switch {
	case errors.Is(err, errLate):
		// All devices of a report whose outcome is not known in time are refused.
		for _, device := range report.Devices {
			response.Refusals = append(response.Refusals, refuse(device.Value(), reasonNotWritten, errLate.Error()))
		}
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if !s.Cluster.AllowsIn(key, s.node) {
		for _, device := range report.Devices {
			response.Refusals = append(response.Refusals, refuse(device.Value(), akriv0.ReasonNodeNotAllowed, "spec.nodes does not allow the node"))
		}
		return response, nil
	}
	for _, refusal := range s.Reports.Refusals(s.node, key) {
		response.Refusals = append(response.Refusals, refuse(refusal.Device, refusal.Reason, refusal.Message))
	}
	return response, nil
}

func refuse(device merge.Device, reason, message string) *instancev1.Refusal {
	return &instancev1.Refusal{Instance: device.ShortName, DeviceId: device.ID, Reason: reason, Message: message}
}

// parseReport converts a message to a report and returns the invalid devices, which the report
// lists as problems.
func parseReport(request *instancev1.ReportDevicesRequest) (*reports.Report, []*instancev1.Refusal) {
	report := &reports.Report{
		UID: types.UID(request.GetConfigurationUid()), Generation: request.GetConfigurationGeneration(),
		Complete: request.GetComplete(), Answered: request.GetAnswered(),
		Handlers: parseHandlers(request.GetHandlers()), Problems: parseProblems(request.GetProblems()),
	}
	var invalid []*instancev1.Refusal
	var devices []merge.Device
	for _, reported := range request.GetDevices() {
		device := merge.Device{
			ShortName: reported.GetInstance(), ID: reported.GetId(), Shared: reported.GetShared(),
		}
		message := cmp.Or(validateDevice(request, device), validateProperties(reported))
		if message == "" {
			device.Properties = merge.NewProperties(escaped(reported.GetProperties()))
			message = validateSize(device.ID, device.Size())
		}
		if message != "" {
			invalid = append(invalid, refuse(device, akriv0.ReasonInvalidDevice, message))
			// Problems that were removed later would stay in memory with the others.
			if len(report.Problems) < maxProblems {
				report.Problems = append(report.Problems, akriv0.Problem{Reason: akriv0.ReasonInvalidDevice, Message: message})
			}
			continue
		}
		devices = append(devices, device)
	}
	report.Devices = reports.NewDevices(devices)
	return report, invalid
}

func parseHandlers(handlers []*instancev1.HandlerState) []akriv0.HandlerStatus {
	var statuses []akriv0.HandlerStatus
	for _, handler := range first(handlers, maxHandlerStates) {
		status := akriv0.HandlerStatus{
			Name: line(handler.GetName()), Endpoint: line(handler.GetEndpoint()),
			Status: akriv0.HandlerState(handler.GetStatus()),
		}
		if handler.GetOfflineSince() != nil {
			// The API server stores whole seconds.
			status.OfflineSince = &metav1.Time{Time: handler.GetOfflineSince().AsTime().Truncate(time.Second)}
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// validateDevice returns why a device cannot become an Instance, or an empty string.
func validateDevice(request *instancev1.ReportDevicesRequest, device merge.Device) string {
	if err := akriv0.ValidateDeviceID(device.ID); err != nil {
		return "a device " + err.Error()
	}
	name := akriv0.InstanceName(request.GetConfiguration(), akriv0.Digest(device.ID, request.GetNode(), device.Shared))
	if device.ShortName != name {
		return fmt.Sprintf("device %.100q has the Instance name %.100q; it must be %.100q", device.ID, device.ShortName, name)
	}
	return ""
}

// validateSize returns why a device is too large, or an empty string.
func validateSize(id string, bytes int) string {
	if bytes <= cluster.MaxDeviceBytes {
		return ""
	}
	return fmt.Sprintf("device %.100q has %d bytes of id and properties: must be at most %d bytes", id, bytes, cluster.MaxDeviceBytes)
}

// escaped returns the properties with values that control no terminal: users read them in Instances
// and ResourceSlices, with programs that print any character. Containers get the values as the
// handler sent them, from discovery-operator.
func escaped(properties map[string]string) map[string]string {
	if properties == nil {
		return nil
	}
	all := make(map[string]string, len(properties))
	for name, value := range properties {
		all[name] = akriv0.Escape(value)
	}
	return all
}

// validateProperties returns why the properties of a device cannot be environment variables, or an
// empty string. Names are shown unchanged. discovery-operator also refuses dangerous names: it has
// their exceptions. The encoding of control characters takes several times their memory, so that
// properties that are too large are refused without it.
func validateProperties(device *discoveryv1.Device) string {
	size := len(device.GetId())
	for name, value := range device.GetProperties() {
		size += len(name) + len(value)
	}
	if message := validateSize(device.GetId(), size); message != "" {
		return message
	}

	for _, name := range slices.Sorted(maps.Keys(device.GetProperties())) {
		if err := akriv0.ValidateVariable(name, device.GetProperties()[name]); err != nil {
			return fmt.Sprintf("device %.100q with property %.100q: %v", device.GetId(), name, err)
		}
	}
	return ""
}
