package admission

import (
	"encoding/json"
	"fmt"
	"net/http"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// Path that the API server posts to: Akri's.
	Path = "/validate"
	// maxReview is above what an API server sends: an object and its former self, each at most 3
	// MiB.
	maxReview = 8 << 20
)

// Handler serves Path. `reviewed` is told of every answer.
func Handler(reviewer Reviewer, log *zap.Logger, reviewed func(allowed bool)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review); err != nil {
			http.Error(w, fmt.Sprintf("decode AdmissionReview: %v", err), http.StatusBadRequest)
			return
		}
		if review.Request == nil {
			http.Error(w, "AdmissionReview has no request", http.StatusBadRequest)
			return
		}
		review.Response = answer(r, reviewer, review.Request, log)
		reviewed(review.Response.Allowed)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			log.Debug("answering the API server failed", zap.Error(err))
		}
	})
	return mux
}

// answer refuses with a message where a mistake in this program would otherwise cut the connection,
// of which the user would learn nothing.
func answer(r *http.Request, reviewer Reviewer, request *admissionv1.AdmissionRequest, log *zap.Logger) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if panicked := recover(); panicked != nil {
			log.Error("review panicked", zap.Any("panic", panicked), zap.Stack("stack"))
			response = refused(request, field.ErrorList{field.InternalError(field.NewPath("spec"), fmt.Errorf("a mistake in Akri: %v", panicked))})
		}
	}()
	response = reviewer.Review(r.Context(), request)
	if !response.Allowed {
		log.Info("configuration refused", zap.String("configuration", request.Namespace+"/"+request.Name), zap.String("reason", response.Result.Message))
	}
	return response
}
