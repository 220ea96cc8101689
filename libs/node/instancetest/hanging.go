package instancetest

import (
	"context"

	"google.golang.org/protobuf/proto"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// HangReservations makes reservations hang until their context ends.
func (w *Writer) HangReservations() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangingReservations = []func(){}
}

// AnswerReservations answers reservations again. It returns those that hang.
func (w *Writer) AnswerReservations() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.hangingReservations
	w.hangingReservations = nil
	return late
}

// HangReleases makes releases hang until their context ends.
func (w *Writer) HangReleases() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangingReleases = []func(){}
}

// AnswerReleases answers releases again. It returns those that hang.
func (w *Writer) AnswerReleases() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.hangingReleases
	w.hangingReleases = nil
	return late
}

// Hanging returns the numbers of hanging releases and reservations.
func (w *Writer) Hanging() (releases, reservations int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.hangingReleases), len(w.hangingReservations)
}

// TimedOutReleases returns the number of hanging releases whose context has ended.
func (w *Writer) TimedOutReleases() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.releaseTimeouts
}

func (w *Writer) hangReservation(ctx context.Context, request *instancev1.ReserveSlotsRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hangingReservations == nil {
		return nil
	}
	before := w.revisions()
	w.hangingReservations = append(w.hangingReservations, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			instance := proto.CloneOf(w.instances[claim.GetInstance()])
			if instance.GetRevision() == before[claim.GetInstance()] && reserve(instance, claim, request.GetNode()) == nil {
				w.store(instance)
			}
		}
	})
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	return ctx.Err()
}

func (w *Writer) hangRelease(ctx context.Context, request *instancev1.ReleaseSlotsRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hangingReleases == nil {
		return nil
	}
	before := w.revisions()
	w.hangingReleases = append(w.hangingReleases, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, claim := range request.GetClaims() {
			if !w.ChecksRevision || before[claim.GetInstance()] == w.instances[claim.GetInstance()].GetRevision() {
				w.free(claim, request.GetNode())
			}
		}
	})
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock()
	w.releaseTimeouts++
	return ctx.Err()
}

// revisions returns the revisions of the Instances. A late call fails if the Instance was written
// since.
func (w *Writer) revisions() map[string]uint64 {
	before := map[string]uint64{}
	for name, instance := range w.instances {
		before[name] = instance.GetRevision()
	}
	return before
}
