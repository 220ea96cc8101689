package handler

import (
	"context"
	"time"

	handlerv1 "akri.sh/proto/akri/handler/v1"
)

type (
	// NearMiss is a group of devices of one kind that meet the same conditions of a request, and
	// not all.
	NearMiss = handlerv1.NearMiss
	// Series is devices whose names differ in one number.
	Series = handlerv1.Series
	// Mismatch is a condition that no device of a NearMiss meets.
	Mismatch = handlerv1.Mismatch
)

// Explainer is an optional interface of a Handler, for users whose details match no device.
type Explainer interface {
	// Explain returns the groups of devices that come closest to matching the request and do not
	// match, the closest first. The request has no Properties.
	Explain(ctx context.Context, request Request) ([]*NearMiss, error)
}

// HalfTime returns a context for half of the time of ctx. An Explainer whose search may take longer
// uses it to return what it has found so far.
func HalfTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// Limits of an explanation.
const (
	// MaxNearMisses is the number of groups of devices.
	MaxNearMisses = 5
	// MaxExamples is the number of series of a group, and of the values of a mismatch.
	MaxExamples      = 3
	maxMissLength    = 256      // characters of a text
	maxDetailsLength = 16 << 10 // bytes
)

// Explain implements `akri.handler.v1.ExplainService`.
func (s *Server) Explain(ctx context.Context, request *handlerv1.ExplainRequest) (*handlerv1.ExplainResponse, error) {
	explainer, ok := s.handler.(Explainer)
	if !ok {
		return s.UnimplementedExplainServiceServer.Explain(ctx, request)
	}
	closest, err := explainer.Explain(ctx, Request{Details: request.GetDiscoveryDetails(), Log: s.log})
	if err != nil {
		return nil, toStatus(err)
	}
	closest = closest[:min(len(closest), MaxNearMisses)]
	for _, miss := range closest {
		limit(miss)
	}
	return &handlerv1.ExplainResponse{Closest: closest}, nil
}

// limit applies the limits of the API, and sets the fields for callers that do not have mismatches.
func limit(miss *NearMiss) {
	miss.Series = miss.GetSeries()[:min(len(miss.GetSeries()), MaxExamples)]
	if len(miss.GetCorrectedDetails()) > maxDetailsLength {
		miss.CorrectedDetails = ""
	}
	for _, mismatch := range miss.GetMismatches() {
		mismatch.Found = mismatch.GetFound()[:min(len(mismatch.GetFound()), MaxExamples)]
		for i, value := range mismatch.GetFound() {
			mismatch.Found[i] = clip(value)
		}
	}

	if len(miss.GetMismatches()) > 0 {
		first := miss.GetMismatches()[0]
		miss.Missed, miss.Value = first.GetCondition(), nil
		if len(first.GetFound()) > 0 {
			miss.Value = &first.GetFound()[0]
		}
	}
	if miss.Value != nil {
		value := clip(miss.GetValue())
		miss.Value = &value
	}
}

func clip(text string) string {
	if characters := []rune(text); len(characters) > maxMissLength {
		return string(characters[:maxMissLength])
	}
	return text
}
