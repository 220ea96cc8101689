package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"

	"akri.sh/services/broker-controller/internal/admission"
)

// stalled is the Schema of an API server that does not respond.
type stalled struct{}

func (stalled) HasField(ctx context.Context, _ reflect.Type, _ string) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// TestConcurrentReviews fills all places, of which one address gets only one. The next review is
// refused when its time ends, and the others respond before the API server stops waiting.
func TestConcurrentReviews(t *testing.T) {
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: created(t, container(`newer: true, `+device))})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		reviewer := admission.Reviewer{Schema: stalled{}}
		handler := admission.Handler(reviewer, zap.NewNop(), func(bool) {})
		post := func(ctx context.Context, address string) *httptest.ResponseRecorder {
			response := httptest.NewRecorder()
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, admission.Path, bytes.NewReader(body))
			request.RemoteAddr = address + ":1"
			handler.ServeHTTP(response, request)
			return response
		}
		started := time.Now()
		var group sync.WaitGroup
		stall := func(address string) {
			group.Go(func() {
				var review admissionv1.AdmissionReview
				require.NoError(t, json.Unmarshal(post(t.Context(), address).Body.Bytes(), &review))
				require.Contains(t, review.Response.Warnings[0], "context deadline exceeded")
			})
			synctest.Wait()
		}
		stall("192.0.2.1")
		for range 32 { // all connections of the address
			group.Go(func() { post(t.Context(), "192.0.2.1") })
		}
		synctest.Wait()
		stall("192.0.2.2") // has a slot at once

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, http.StatusTooManyRequests, post(ctx, "192.0.2.3").Code)
		group.Wait()
		require.Equal(t, 8*time.Second, time.Since(started))
	})
}

// Text takes far more memory when it is decoded, so it is refused before that.
func TestReviewsWithManyValuesAreNotDecoded(t *testing.T) {
	for name, text := range map[string]string{
		"objects":  `{"x":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`,
		"numbers":  `{"x":[` + strings.Repeat(`0,`, 1<<20) + `0]}`,
		"lists":    strings.Repeat(`[`, 1<<20),
		"keys":     `{` + strings.Repeat(`"":0,`, 1<<18) + `"":0}`,
		"too long": `{"x":"` + strings.Repeat(`x`, 4<<20) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.Equal(t, http.StatusRequestEntityTooLarge, post(t, []byte(text)).Code)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "bytes that were allocated")
		})
	}
}

// A large object with long texts, as etcd stores at most, is reviewed.
func TestLargeReviewsAreDecoded(t *testing.T) {
	request := created(t, `{discoveryHandler: {name: onvif, discoveryDetails: `+strings.Repeat("x", 1<<20)+`}}`)
	request.OldObject, request.Operation = request.Object, admissionv1.Update
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: request})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, post(t, body).Code)
}

// stuck is the body of a client that sends a part of a review, and no more until the end.
type stuck struct {
	io.Reader

	end <-chan struct{}
}

func (s stuck) Read(p []byte) (int, error) {
	if n, err := s.Reader.Read(p); err == nil {
		return n, nil
	}
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// senders are clients that send a large part of a review, and no more until the end.
type senders struct {
	*testing.T

	handler http.Handler
	end     chan struct{}
	codes   chan int // of those that were refused, or that have ended
}

func newSenders(t *testing.T) *senders {
	t.Helper()
	handler := admission.Handler(reviewer, zap.NewNop(), func(bool) {})
	return &senders{t, handler, make(chan struct{}), make(chan int, 200)}
}

func (s *senders) post(address string, body io.Reader) int {
	response := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(s.Context(), http.MethodPost, admission.Path, body)
	request.RemoteAddr = address + ":1"
	s.handler.ServeHTTP(response, request)
	return response.Code
}

// start starts 30 senders of an address.
func (s *senders) start(address string) {
	for range 30 {
		go func() { s.codes <- s.post(address, stuck{strings.NewReader(strings.Repeat(" ", 3<<20)), s.end}) }()
	}
}

// Clients that send slowly hold no place for reviews, and the bytes of all addresses are limited. A
// review of usual size is never refused.
func TestSlowClientsDoNotDelayOthers(t *testing.T) {
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: created(t, container(device))})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		s := newSenders(t)
		for address := range 6 {
			s.start(fmt.Sprint("192.0.2.", address))
		}
		synctest.Wait()
		// With fewer than five, others had parts of the bytes when the last part was refused.
		require.GreaterOrEqual(t, len(s.codes), 175, "refused: all but at most five of 3 MiB, which the limit of 16 MiB allows")
		started := time.Now()
		for range 100 {
			require.Equal(t, http.StatusOK, s.post("198.51.100.1", bytes.NewReader(body)))
			require.Equal(t, http.StatusOK, s.post("192.0.2.0", bytes.NewReader(body)))
		}
		require.Equal(t, started, time.Now(), "no review has waited")

		close(s.end)
		synctest.Wait()
		require.Len(t, s.codes, 180)
		require.Equal(t, http.StatusOK, s.post("192.0.2.0", bytes.NewReader(large(body))), "all bytes are free again")
	})
}

// Large reviews of one address leave memory for those of others.
func TestBytesOfOneAddressAreLimited(t *testing.T) {
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: created(t, container(device))})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		s := newSenders(t)
		s.start("192.0.2.1")
		synctest.Wait()
		require.GreaterOrEqual(t, len(s.codes), 28, "refused: all but at most two of 3 MiB, which half of 16 MiB allows")
		require.Equal(t, http.StatusOK, s.post("192.0.2.2", bytes.NewReader(large(body))))

		s.start("192.0.2.2")
		synctest.Wait()
		require.GreaterOrEqual(t, len(s.codes), 57)
		require.Equal(t, http.StatusOK, s.post("192.0.2.3", bytes.NewReader(large(body)[:len(body)+1<<20])))
		close(s.end)
	})
}

// large returns the review with 3 MiB of space behind it.
func large(review []byte) []byte { return append(slices.Clone(review), strings.Repeat(" ", 3<<20)...) }

// TestResponsesDoNotDependOnTheCaller sends reviews as several users and for several namespaces.
func TestResponsesDoNotDependOnTheCaller(t *testing.T) {
	for _, spec := range []string{container(device), container(`envFrom: [{secretRef: {name: s}}]`), head + `capasity: 2}`} {
		responses := map[string]bool{}
		for _, user := range []string{"", "system:admin", "system:serviceaccount:default:default"} {
			for _, namespace := range []string{"default", "kube-system"} {
				request := created(t, spec)
				request.Namespace, request.UserInfo.Username, request.UserInfo.Groups = namespace, user, []string{"system:masters"}
				body, err := json.Marshal(admissionv1.AdmissionReview{Request: request})
				require.NoError(t, err)
				responses[post(t, body).Body.String()] = true
			}
		}
		require.Len(t, responses, 1, spec)
	}
}

// TestCostOfReviewsIsBounded sends what takes most memory or time within the limits of a review.
// Two of them at once must fit into the memory of broker-controller.
func TestCostOfReviewsIsBounded(t *testing.T) {
	list := func(name, item string) string {
		items := 90_000 / (strings.Count(item, "{") + strings.Count(item, "[") + 1)
		return pod(name + `: [` + strings.Repeat(item+`, `, items) + item + `]`)
	}
	for name, spec := range map[string]string{
		"containers":           list("containers", `{name: a}`),
		"ephemeral containers": list("ephemeralContainers", `{}`),
		"variables":            container(`env: [` + strings.Repeat(`{}, `, 45_000) + `{}]`),
		"lists of lists":       list("volumes", `{projected: {sources: [{}]}}`),
		"small exponent":       container(`resources: {limits: {cpu: "1e-999999999"}}`),
		"large exponent":       container(`resources: {limits: {"{{PLACEHOLDER}}": "1e999999999"}, requests: {"{{PLACEHOLDER}}": 1}}`),
		"zeros":                container(`resources: {limits: {"{{PLACEHOLDER}}": "1` + strings.Repeat("0", 3<<20) + `"}}`),
		"many digits":          container(`resources: {requests: {cpu: "1234567890123456789012e999999999"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			body, err := json.Marshal(admissionv1.AdmissionReview{Request: created(t, spec)})
			require.NoError(t, err)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			response := post(t, body)
			runtime.ReadMemStats(&after)
			require.Equal(t, http.StatusOK, response.Code)
			require.Contains(t, response.Body.String(), `"allowed":false`)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(70<<20), "bytes that were allocated")
			t.Logf("%d MiB for %d KiB", (after.TotalAlloc-before.TotalAlloc)>>20, len(body)>>10)
		})
	}
}
