package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Any Pod can send reviews: API servers do not authenticate to webhooks unless their administrator
// configures it. These limits bound the memory that all of them take.
const (
	// Path of the webhook, as in upstream Akri.
	Path = "/validate"
	// maxReviewBytes is more than two versions of an object that etcd stores (1.5 MiB).
	maxReviewBytes = 4 << 20
	// maxReviewValues is the number of values in a review. A decoded value can take a hundred times
	// the memory of its text.
	maxReviewValues = 100_000
	// maxBytes limits the reviews that are being received, besides the first part of each. One
	// address has at most as much as stays free for others, which is half of it.
	maxBytes = 4 * maxReviewBytes
	// maxReviews limits the reviews that are decoded at once. One takes milliseconds, and
	// allocates at most 50 MiB in all.
	maxReviews = 2
	// partBytes is more than most reviews have.
	partBytes = 64 << 10
	// reviewTimeout is less than the API server waits, so that the user gets the reason.
	reviewTimeout = 8 * time.Second
)

var (
	errTooLarge = fmt.Errorf("the AdmissionReview has more than %d MiB or %d values", maxReviewBytes>>20, maxReviewValues)
	errBusy     = errors.New("too many concurrent reviews")
)

// Handler serves Path. onReview is called after each review.
func Handler(reviewer Reviewer, log *zap.Logger, onReview func(allowed bool)) http.Handler {
	h := &handler{
		Reviewer: reviewer, log: log, onReview: onReview,
		slots: make(chan struct{}, maxReviews), bytes: budget{bySource: map[string]int{}}, turns: turns{bySource: map[string]*turn{}},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, h.serve)
	return mux
}

type handler struct {
	Reviewer

	log      *zap.Logger
	onReview func(allowed bool)
	slots    chan struct{}
	bytes    budget
	turns    turns
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	answer, err := h.answer(r)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}

	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(answer); err != nil { //nolint:gosec // JSON for an API server, not a page
		h.log.Debug("sending the AdmissionReview failed", zap.Error(err))
	}
}

// answer holds bytes of the budget only until the review has been made, so that a client that does
// not receive the response holds none.
func (h *handler) answer(r *http.Request) ([]byte, error) {
	source, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return nil, fmt.Errorf("address of the client: %w", err)
	}
	text, taken, err := h.receive(source, r.Body)
	defer h.bytes.give(source, taken)
	if err != nil {
		return nil, err
	}
	return h.review(r.Context(), source, text)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	default:
		return http.StatusBadRequest
	}
}

// receive reads a review in parts, and takes the bytes of each part but the first from the budget:
// most reviews have one part, and large reviews of others must not prevent them. The number of
// connections limits the first parts.
func (h *handler) receive(source string, body io.Reader) (text []byte, taken int, err error) {
	for {
		text = slices.Grow(text, partBytes)
		n, err := io.ReadFull(body, text[len(text):len(text)+partBytes])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return text, taken, nil
		case err != nil:
			return nil, taken, fmt.Errorf("receive AdmissionReview: %w", err)
		case len(text) >= maxReviewBytes:
			return nil, taken, errTooLarge
		case !h.bytes.take(source, partBytes):
			return nil, taken, errBusy
		}
		taken += partBytes
	}
}

// review returns the text of the response.
func (h *handler) review(ctx context.Context, source string, text []byte) ([]byte, error) {
	if values(text) > maxReviewValues {
		return nil, errTooLarge
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	giveTurn, err := h.turns.take(ctx, source)
	if err != nil {
		return nil, err
	}
	defer giveTurn()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return nil, errBusy
	}

	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		return nil, fmt.Errorf("decode AdmissionReview: %w", err)
	}
	if review.Request == nil {
		return nil, errors.New("AdmissionReview has no request")
	}
	review.Response = h.respond(ctx, review.Request)
	h.onReview(review.Response.Allowed)
	review.Request = nil
	return json.Marshal(review)
}

// turns let the reviews of one address wait for each other, so that they take one slot.
type turns struct {
	mu       sync.Mutex
	bySource map[string]*turn
}

// turn is held by one review. users are that and those that wait for it.
type turn struct {
	slot  chan struct{}
	users int
}

func (t *turns) take(ctx context.Context, source string) (give func(), err error) {
	t.mu.Lock()
	own := t.bySource[source]
	if own == nil {
		own = &turn{slot: make(chan struct{}, 1)}
		t.bySource[source] = own
	}
	own.users++
	t.mu.Unlock()

	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.bySource, source)
		}
	}
	give = func() { <-own.slot; leave() }
	select {
	case own.slot <- struct{}{}:
		if ctx.Err() == nil {
			return give, nil
		}
		give()
	case <-ctx.Done():
		leave()
	}
	return nil, errBusy
}

// values returns the number of values in a text of JSON, or more if the text is not valid: those of
// a list or an object follow a bracket or a comma.
func values(text []byte) (count int) {
	for b := range akriv0.Structure(text) {
		if b == '{' || b == '[' || b == ',' {
			count++
		}
	}
	return count
}

// budget limits the bytes that are in memory. However much the addresses with bytes have taken,
// another one gets half of what is left.
type budget struct {
	mu       sync.Mutex
	total    int
	bySource map[string]int
}

func (b *budget) take(source string, bytes int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if total, own := b.total+bytes, b.bySource[source]+bytes; own > maxBytes-total {
		return false
	}
	b.total += bytes
	b.bySource[source] += bytes
	return true
}

func (b *budget) give(source string, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= bytes
	if b.bySource[source] -= bytes; b.bySource[source] == 0 {
		delete(b.bySource, source)
	}
}

// respond refuses the request after a panic. net/http would close the connection without a message
// for the user.
func (h *handler) respond(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if reason := recover(); reason != nil {
			h.log.Error("review panicked", zap.Any("panic", reason), zap.Stack("stack"))
			err := fmt.Errorf("bug in Akri: %v", reason)
			response = refused(request, field.ErrorList{field.InternalError(field.NewPath("spec"), err)})
		}
	}()
	response = h.Review(ctx, request)
	if !response.Allowed {
		h.log.Info("configuration refused", zap.String("configuration", request.Namespace+"/"+request.Name),
			zap.String("reason", response.Result.Message))
	}
	return response
}
