package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"akri.sh/services/broker-controller/internal/admission"
)

// stalled is an Authorizer whose API server does not respond.
type stalled struct{}

func (stalled) Allowed(ctx context.Context, _ authenticationv1.UserInfo, _ authorizationv1.ResourceAttributes) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// TestConcurrentReviews fills all places. The next review is refused when its time ends, and the
// others respond before the API server stops waiting.
func TestConcurrentReviews(t *testing.T) {
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: created(t, container(device))})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		reviewer := admission.Reviewer{Schema: newerSchema{}, Authorizer: stalled{}}
		handler := admission.Handler(reviewer, zap.NewNop(), func(bool) {})
		post := func(ctx context.Context) *httptest.ResponseRecorder {
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodPost, admission.Path, bytes.NewReader(body)))
			return response
		}
		started := time.Now()
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				var review admissionv1.AdmissionReview
				require.NoError(t, json.Unmarshal(post(t.Context()).Body.Bytes(), &review))
				require.Contains(t, review.Response.Result.Message, "context deadline exceeded")
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, http.StatusTooManyRequests, post(ctx).Code)
		group.Wait()
		require.Equal(t, 8*time.Second, time.Since(started))
	})
}
