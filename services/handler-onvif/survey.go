package onvif

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/configuration"
	"akri.sh/services/handler-onvif/internal/soap"
)

const (
	// firstListWithin is how much longer than the user wants to wait cameras that are slow may hold up the first list.
	firstListWithin = 15 * time.Second
	// refreshEvery is how often a camera is asked again for what hardly changes; also the pause after credentials that
	// it refused, as cameras lock out who tries too often.
	refreshEvery = 5 * time.Minute
	// retryEvery is the pause after a question without an answer.
	retryEvery = 10 * time.Second
	// settleEvery is how often the time alone can make the first list complete.
	settleEvery = 100 * time.Millisecond
)

// survey is what one Configuration wants to know of the cameras of the census.
type survey struct {
	details     configuration.Details
	credentials configuration.Credentials
	census      *census
	log         *zap.Logger
	subjects    map[string]*subject // by UUID
	answers     chan answer
	questions   sync.WaitGroup
}

// subject is a camera as the survey knows it.
type subject struct {
	camera cameras.Camera
	asking bool
	again  time.Time      // when to ask next
	facts  *facts         // nil: not asked yet
	shown  cameras.Camera // where it was when it told the facts
}

// facts are what a camera answered; what it did not answer is empty.
type facts struct {
	soap.Addresses
	soap.Information
}

type answer struct {
	camera cameras.Camera
	facts  facts
	err    error
}

func discover(ctx context.Context, census *census, request handler.Request, send handler.Send) error {
	s := &survey{census: census, log: request.Log, subjects: map[string]*subject{}, answers: make(chan answer)}
	if err := handler.DecodeDetails(request, &s.details); err != nil {
		return err
	}
	if err := s.details.Validate(); err != nil {
		return handler.Invalid(fmt.Errorf("discoveryDetails: %w", err))
	}
	var err error
	if s.credentials, err = configuration.ParseCredentials(request.Properties); err != nil {
		s.log.Warn("read credentials; those that can be read are used", zap.Error(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.questions.Wait()
	defer cancel()
	return s.run(ctx, send)
}

func (s *survey) run(ctx context.Context, send handler.Send) error {
	changed, stop := s.census.follow()
	defer stop()
	began, sent := time.Now(), false
	timer := time.NewTimer(settleEvery)
	defer timer.Stop()
	for {
		cameras, complete := s.census.cameras(s.details.Timeout())
		settled := s.update(ctx, cameras)
		if sent || complete && settled || time.Since(began) > s.details.Timeout()+firstListWithin {
			if err := send(s.devices(cameras)); err != nil {
				return err
			}
			sent = true
		}
		timer.Reset(s.pause(sent))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case answer := <-s.answers:
			s.take(answer)
		case <-timer.C:
		}
		s.gather(ctx)
	}
}

// gather takes what else comes in a moment: each look at the cameras is at all of them.
func (s *survey) gather(ctx context.Context) {
	wait(ctx, moment)
	for {
		select {
		case answer := <-s.answers:
			s.take(answer)
		default:
			return
		}
	}
}

// update asks the cameras that must be asked, forgets those that are gone, and tells whether all were asked.
func (s *survey) update(ctx context.Context, found []cameras.Camera) bool {
	present, settled := make(map[string]bool, len(found)), true
	for _, camera := range found {
		if !s.details.MatchesEndpoint(camera.UUID, camera.Scopes) {
			continue
		}
		present[camera.UUID] = true
		known := s.subjects[camera.UUID]
		if known == nil {
			known = &subject{}
			s.subjects[camera.UUID] = known
		}
		moved := known.camera.URL != camera.URL
		known.camera = camera
		if !known.asking && (moved || !time.Now().Before(known.again)) {
			known.asking = true
			s.questions.Go(func() { s.ask(ctx, camera) })
		}
		settled = settled && known.facts != nil
	}
	for uuid := range s.subjects {
		if !present[uuid] {
			delete(s.subjects, uuid)
		}
	}
	return settled
}

func (s *survey) ask(ctx context.Context, camera cameras.Camera) {
	target := soap.Target{URL: camera.URL, Zone: camera.Zone, ClockOffset: camera.ClockOffset, Credentials: s.credentials.For(camera.UUID)}
	result := answer{camera: camera}
	result.facts.Addresses, result.err = s.census.known.Addresses(ctx, target)
	if result.err == nil && s.details.DeviceInformation {
		result.facts.Information, result.err = s.census.known.Information(ctx, target)
	}
	select {
	case s.answers <- result:
	case <-ctx.Done():
	}
}

// take keeps what a camera told before when it does not answer again.
func (s *survey) take(answer answer) {
	known := s.subjects[answer.camera.UUID]
	if known == nil {
		return
	}
	known.asking = false
	if known.camera.URL != answer.camera.URL {
		known.again = time.Time{} // it moved while it was asked
		return
	}
	known.again = time.Now().Add(refreshEvery)
	moved := known.shown.URL != answer.camera.URL
	known.shown = answer.camera
	if answer.err == nil {
		known.facts = &answer.facts
		return
	}
	if !errors.Is(answer.err, soap.ErrNotAuthorized) {
		known.again = time.Now().Add(retryEvery)
	}
	s.log.Debug("ask camera", zap.String("device_id", answer.camera.UUID), zap.Error(answer.err))
	if known.facts == nil || moved {
		known.facts = &answer.facts
	}
}

// pause is until the next question, or until the first list may be complete.
func (s *survey) pause(sent bool) time.Duration {
	if !sent {
		return settleEvery
	}
	pause := refreshEvery
	for _, known := range s.subjects {
		if !known.asking {
			pause = min(pause, time.Until(known.again))
		}
	}
	return max(pause, 0)
}

func (s *survey) devices(found []cameras.Camera) []*handler.Device {
	var devices []*handler.Device
	for _, camera := range found {
		known := s.subjects[camera.UUID]
		if known == nil || known.facts == nil || !s.details.MatchesAddresses(known.facts.IP, known.facts.MAC) {
			continue
		}
		devices = append(devices, &handler.Device{
			Id:         s.details.DeviceID(known.shown.URL, camera.UUID),
			Properties: properties(known.shown, *known.facts),
		})
	}
	return devices
}

// properties have the names of Akri; what is not known is left out.
func properties(camera cameras.Camera, facts facts) map[string]string {
	properties := map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": camera.URL,
		"ONVIF_DEVICE_UUID":        camera.UUID,
	}
	for name, value := range map[string]string{
		"ONVIF_DEVICE_IP_ADDRESS":       facts.IP,
		"ONVIF_DEVICE_MAC_ADDRESS":      facts.MAC,
		"ONVIF_DEVICE_MANUFACTURER":     facts.Manufacturer,
		"ONVIF_DEVICE_MODEL":            facts.Model,
		"ONVIF_DEVICE_FIRMWARE_VERSION": facts.FirmwareVersion,
		"ONVIF_DEVICE_SERIAL_NUMBER":    facts.SerialNumber,
		"ONVIF_DEVICE_HARDWARE_ID":      facts.HardwareID,
	} {
		if value != "" && len(value) <= maxProperty {
			properties[name] = value
		}
	}
	return properties
}

// maxProperty is the longest property that Akri takes.
const maxProperty = 4096
