package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	longestReportPause = 5 * time.Second
	// maxUnanswered reports are under way at a time: the API server sets the pace.
	maxUnanswered = 64
	// answerWithin is how long the writer may take before another replica is tried.
	answerWithin = 30 * time.Second
)

// errSilent ends a stream whose writer does not answer.
var errSilent = errors.New("instance-writer has not answered for too long")

// reporter tells the cluster what the node sees. Discovery never waits for it.
type reporter struct {
	log   *zap.Logger
	node  string
	views *views
	conn  *grpc.ClientConn

	refused map[string]string // the devices that the log tells of, by Configuration
}

func (r *reporter) run(ctx context.Context) {
	rpc.Keep(ctx, r.log, longestReportPause, func(ctx context.Context, healthy func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := instancev1.NewInstanceServiceClient(r.conn).ReportDevices(ctx)
		if err != nil {
			return fmt.Errorf("open report stream: %w", err)
		}
		answers := make(chan *instancev1.ReportDevicesResponse)
		ended := make(chan error, 1)
		go func() { ended <- receive(ctx, stream, answers) }()
		err = (&reportStream{reporter: r, stream: stream, told: map[string]uint64{}, unanswered: map[uint64]string{}}).run(ctx, answers, ended, healthy)
		cancel()
		return err
	})
}

func receive(
	ctx context.Context, stream grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse],
	answers chan<- *instancev1.ReportDevicesResponse,
) error {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive answer: %w", err)
		}
		select {
		case answers <- answer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reportStream is one stream: a new one starts from nothing and tells everything.
type reportStream struct {
	*reporter
	stream     grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
	revision   uint64
	told       map[string]uint64 // the version of each view that was sent last
	unanswered map[uint64]string // Configurations, by revision
}

func (s *reportStream) run(ctx context.Context, answers <-chan *instancev1.ReportDevicesResponse, ended <-chan error, healthy func()) error {
	patience := time.NewTimer(answerWithin)
	defer patience.Stop()
	for {
		changed, err := s.send()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case answer := <-answers:
			healthy()
			s.answered(answer)
			patience.Reset(answerWithin)
		case <-changed:
			if len(s.unanswered) == 0 {
				patience.Reset(answerWithin)
			}
		case <-patience.C:
			if len(s.unanswered) > 0 {
				return errSilent
			}
		}
	}
}

// send sends the views that changed since they were sent, one of each Configuration at a time: while one is under way
// only the newest that follows is worth sending.
func (s *reportStream) send() (<-chan struct{}, error) {
	all, ready, changed := s.views.snapshot()
	if !ready {
		return changed, nil
	}
	underWay := map[string]bool{}
	for _, key := range s.unanswered {
		underWay[key] = true
	}
	s.forget(all)
	for _, one := range all {
		if s.told[one.key] == one.version || underWay[one.key] || len(s.unanswered) >= maxUnanswered {
			continue
		}
		s.revision++
		if err := s.stream.Send(s.message(one)); err != nil {
			return nil, fmt.Errorf("send report: %w", err)
		}
		s.told[one.key] = one.version
		s.unanswered[s.revision] = one.key
	}
	return changed, nil
}

func (s *reportStream) message(one view) *instancev1.ReportDevicesRequest {
	return &instancev1.ReportDevicesRequest{
		Node: s.node, Revision: s.revision,
		Namespace: one.Report.GetNamespace(), Configuration: one.Report.GetConfiguration(),
		ConfigurationUid: one.Report.GetConfigurationUid(), Complete: one.Report.GetComplete(),
		Devices: one.Report.GetDevices(), Handlers: one.Report.GetHandlers(), Problems: one.Report.GetProblems(),
		ConfigurationGeneration: one.Report.GetConfigurationGeneration(),
	}
}

// forget drops what is known of Configurations that are gone.
func (s *reportStream) forget(all []view) {
	if len(s.told) <= len(all) {
		return
	}
	kept := make(map[string]uint64, len(all))
	for _, one := range all {
		if version, told := s.told[one.key]; told {
			kept[one.key] = version
		}
	}
	s.told = kept
}

func (s *reportStream) answered(answer *instancev1.ReportDevicesResponse) {
	configuration := s.unanswered[answer.GetRevision()]
	delete(s.unanswered, answer.GetRevision())
	// A stream that opens again brings the same refusals again.
	text := fmt.Sprint(answer.GetRefusals())
	if s.refused[configuration] == text {
		return
	}
	s.refused[configuration] = text
	for _, refusal := range answer.GetRefusals() {
		s.log.Warn("a device did not become part of an Instance", zap.String("configuration", configuration),
			zap.String("instance", refusal.GetInstance()), zap.String("device_id", refusal.GetDeviceId()),
			zap.String("reason", refusal.GetReason()), zap.String("message", refusal.GetMessage()))
	}
}
