package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// Path of the webhook, as in upstream Akri.
	Path = "/validate"
	// maxReviewBytes is more than an API server sends: two versions of an object, at most 3 MiB
	// each.
	maxReviewBytes = 8 << 20
	// maxReviews limits the memory that concurrent reviews use.
	maxReviews = 4
	// reviewTimeout is less than the API server waits, so that the user gets the reason.
	reviewTimeout = 8 * time.Second
)

// Handler serves Path. onReview is called after each review.
func Handler(reviewer Reviewer, log *zap.Logger, onReview func(allowed bool)) http.Handler {
	slots := make(chan struct{}, maxReviews)
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
		defer cancel()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			http.Error(w, "too many concurrent reviews", http.StatusTooManyRequests)
			return
		}
		r = r.WithContext(ctx)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReviewBytes)).Decode(&review); err != nil {
			http.Error(w, fmt.Sprintf("decode AdmissionReview: %v", err), http.StatusBadRequest)
			return
		}
		if review.Request == nil {
			http.Error(w, "AdmissionReview has no request", http.StatusBadRequest)
			return
		}
		review.Response = respond(r, reviewer, review.Request, log)
		onReview(review.Response.Allowed)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			log.Debug("sending the AdmissionReview failed", zap.Error(err))
		}
	})
	return mux
}

// respond refuses the request after a panic. net/http would close the connection without a message
// for the user.
func respond(
	r *http.Request, reviewer Reviewer, request *admissionv1.AdmissionRequest, log *zap.Logger,
) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if reason := recover(); reason != nil {
			log.Error("review panicked", zap.Any("panic", reason), zap.Stack("stack"))
			err := fmt.Errorf("bug in Akri: %v", reason)
			response = refused(request, field.ErrorList{field.InternalError(field.NewPath("spec"), err)})
		}
	}()
	response = reviewer.Review(r.Context(), request)
	if !response.Allowed {
		log.Info("configuration refused", zap.String("configuration", request.Namespace+"/"+request.Name),
			zap.String("reason", response.Result.Message))
	}
	return response
}
