package handler

import (
	"context"

	handlerv1 "akri.sh/proto/akri/handler/v1"
)

// NearMiss is a device that meets some conditions of a request, and not all.
type NearMiss = handlerv1.NearMiss

// Explainer is an optional interface of a Handler, for users whose details match no device.
type Explainer interface {
	// Explain returns the devices that come closest to matching the request and do not match, the
	// closest first. The request has no Properties.
	Explain(ctx context.Context, request Request) ([]*NearMiss, error)
}

// Limits of an explanation, in devices and characters.
const (
	maxNearMisses = 5
	maxMissLength = 256
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
	closest = closest[:min(len(closest), maxNearMisses)]
	for _, miss := range closest {
		if characters := []rune(miss.GetValue()); len(characters) > maxMissLength {
			value := string(characters[:maxMissLength])
			miss.Value = &value
		}
	}
	return &handlerv1.ExplainResponse{Closest: closest}, nil
}
