package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// apiServer is a fake that counts reviews.
type apiServer struct {
	mu      sync.Mutex
	reviews int
	running int
	most    int // reviews at once
	err     error
}

func (s *apiServer) review(context.Context, string, string) (Identity, error) {
	s.mu.Lock()
	s.reviews++
	s.running++
	s.most = max(s.most, s.running)
	s.mu.Unlock()
	<-time.After(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	return Identity{"akri-agent", "node-a"}, s.err
}

func (s *apiServer) answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newAuthenticator(s *apiServer) *Authenticator {
	return New(Options{
		Namespace: "akri", Review: s.review, PerSource: 64, Log: zap.NewNop(),
		NodeExists: func(context.Context, string) (bool, error) { return true, nil }, Memory: func(string) error { return nil },
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused"}, []string{"reason"}),
	})
}

// newToken returns a token without a valid signature. The serial number makes it unique.
func newToken(serial int, lifetime time.Duration) string {
	claims := fmt.Sprintf(`{"aud":[%q],"sub":"system:serviceaccount:akri:akri-agent","exp":%d,"jti":%d}`,
		Audience, time.Now().Add(lifetime).Unix(), serial)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func callWith(token, address string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(address), Port: 1}})
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
}

func reasonOf(err error) Reason {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Reason
	}
	return ""
}

func TestTokenIsReviewedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		a, ctx := newAuthenticator(api), callWith(newToken(0, time.Hour), "10.0.0.1")
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				_, err := a.identify(ctx)
				require.NoError(t, err)
			})
		}
		calls.Wait()
		require.Equal(t, 1, api.reviews, "concurrent calls share a review")
		<-time.After(reviewInterval - time.Second)
		_, err := a.identify(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, api.reviews)
		<-time.After(time.Second)
		_, err = a.identify(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, api.reviews)

		api.answer(refuse(ReasonToken, "the Pod was deleted"))
		<-time.After(reviewInterval)
		_, err = a.identify(ctx)
		require.Equal(t, ReasonToken, reasonOf(err))
		api.answer(nil)
		<-time.After(invalidAge - time.Second)
		_, err = a.identify(ctx)
		require.Equal(t, ReasonToken, reasonOf(err))
		require.Equal(t, 3, api.reviews, "an invalid token is not reviewed again at once")
		<-time.After(2 * time.Second)
		_, err = a.identify(ctx)
		require.NoError(t, err)
	})
}

func TestKnownTokenWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		a := newAuthenticator(api)
		long, short := callWith(newToken(0, time.Hour), "10.0.0.1"), callWith(newToken(1, 5*time.Minute), "10.0.0.1")
		began := time.Now()
		for _, ctx := range []context.Context{long, short} {
			_, err := a.identify(ctx)
			require.NoError(t, err)
		}
		api.answer(errors.New("no answer"))
		for time.Since(began) < maxAge-time.Second {
			<-time.After(time.Second)
			_, err := a.identify(long)
			require.NoError(t, err, "%s after the review", time.Since(began))
			_, err = a.identify(short)
			if time.Since(began) <= 5*time.Minute {
				require.NoError(t, err)
			} else {
				require.Equal(t, ReasonExpired, reasonOf(err))
			}
		}
		require.LessOrEqual(t, api.reviews, 2+int(2*maxAge/retryInterval), "calls do not wait for a review each")
		<-time.After(2 * time.Second)
		_, err := a.identify(long)
		require.Equal(t, ReasonUnavailable, reasonOf(err), "10 minutes after the last review")
		api.answer(nil)
		_, err = a.identify(long)
		require.NoError(t, err, "a missing answer is not an invalid token")
	})
}

// A client that sends a new token with each call causes few reviews. Other callers are reviewed.
func TestFloodOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{err: refuse(ReasonToken, "wrong signature")}
		a := newAuthenticator(api)
		const seconds = 10
		for i := range 1000 * seconds {
			_, err := a.identify(callWith(newToken(i, time.Hour), "10.0.0.1"))
			require.Contains(t, []Reason{ReasonToken, ReasonRate}, reasonOf(err))
			<-time.After(time.Millisecond)
		}
		require.LessOrEqual(t, api.reviews, 64/tokenBurstShare+(seconds+1)*64/tokenRateShare)
		require.Equal(t, maxInvalid, a.callers.MaxRefusals)
		api.answer(nil)
		_, err := a.identify(callWith(newToken(-1, time.Hour), "10.0.0.2"))
		require.NoError(t, err)
	})
}

// The tokens of 1,000 nodes are reviewed after a restart, a few at once.
func TestAllNodesConnectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{}
		a := newAuthenticator(api)
		var calls sync.WaitGroup
		for i := range 2000 {
			calls.Go(func() {
				_, err := a.identify(callWith(newToken(i, time.Hour), fmt.Sprintf("10.0.%d.%d", i/250, i%250)))
				require.NoError(t, err)
			})
		}
		calls.Wait()
		require.Equal(t, 2000, api.reviews)
		require.Equal(t, maxNewReviews, api.most)
	})
}

func TestCallsOfOneNodeAreLimited(t *testing.T) {
	a := newAuthenticator(&apiServer{})
	ctx := context.WithValue(t.Context(), identityKey{}, Identity{"akri-agent", "node-a"})
	var open []*call
	for range maxCalls {
		opened, _, err := a.open(ctx)
		require.NoError(t, err)
		open = append(open, opened)
	}
	_, _, err := a.open(ctx)
	require.ErrorContains(t, err, `node "node-a" has 16 calls in progress`)
	require.InDelta(t, 1, testutil.ToFloat64(a.Refused.WithLabelValues(string(ReasonCalls))), 0)
	_, _, err = a.open(context.WithValue(t.Context(), identityKey{}, Identity{"akri-agent", "node-b"}))
	require.NoError(t, err)
	a.close(open[0])
	_, _, err = a.open(ctx)
	require.NoError(t, err)
}

// A call is refused if its Node is deleted after the token was verified and before the call is
// recorded.
func TestNodeIsDeletedAsACallStarts(t *testing.T) {
	a := newAuthenticator(&apiServer{})
	exists := true
	a.NodeExists = func(context.Context, string) (bool, error) { return exists, nil }
	identity, err := a.identify(callWith(newToken(0, time.Hour), "10.0.0.1"))
	require.NoError(t, err)
	exists = false
	a.NodeDeleted(identity.Node)
	_, _, err = a.open(context.WithValue(t.Context(), identityKey{}, identity))
	require.ErrorContains(t, err, `there is no Node "node-a"`)
	require.InDelta(t, 1, testutil.ToFloat64(a.Refused.WithLabelValues(string(ReasonUnknownNode))), 0)
	require.Empty(t, a.calls)
}

// A node can send messageBurst at once and then messageRate, for as long as it sends.
func TestMessagesOfOneNodeAreLimited(t *testing.T) {
	of := func(node string) context.Context {
		return context.WithValue(context.Background(), identityKey{}, Identity{"akri-agent", node})
	}
	report := func(bytes int) func(string) proto.Message {
		devices := []*discoveryv1.Device{{Id: strings.Repeat("x", bytes)}}
		return func(node string) proto.Message { return &instancev1.ReportDevicesRequest{Node: node, Devices: devices} }
	}
	for name, c := range map[string]struct {
		message func(node string) proto.Message
		size    int
	}{
		"small": {report(1), minMessageBytes},
		"large": {report(1 << 16), proto.Size(report(1 << 16)("node-a"))},
		"slots": {func(node string) proto.Message {
			return &instancev1.ReserveSlotsRequest{Node: node, Claims: make([]*instancev1.SlotClaim, 10)}
		}, 10 * minMessageBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, size := newAuthenticator(&apiServer{}), c.size
				send := func(ctx context.Context, node string) error { return a.checkMessage(ctx, c.message(node)) }
				began := time.Now()
				for range messageBurst / size {
					require.NoError(t, send(of("node-a"), "node-a"))
				}
				require.Less(t, time.Since(began), time.Second, "the burst is not delayed")
				const seconds = 150
				for range seconds * messageRate / size {
					require.NoError(t, send(of("node-a"), "node-a"))
				}
				require.InDelta(t, seconds, time.Since(began).Seconds(), 1)

				ctx, cancel := context.WithTimeout(of("node-a"), time.Millisecond)
				defer cancel()
				err := send(ctx, "node-a")
				require.ErrorContains(t, err, `node "node-a" sends more than 1048576 bytes a second`)
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				require.InDelta(t, 1, testutil.ToFloat64(a.Refused.WithLabelValues(string(ReasonMessages))), 0)
				began = time.Now()
				require.NoError(t, send(of("node-b"), "node-b"))
				require.Zero(t, time.Since(began), "another node is not delayed")
			})
		})
	}
}

// A node sends large messages on all streams at once. Those that wait are in memory, so few of them
// wait, and the others are refused at once. Small messages still wait.
func TestLargeMessagesOfOneNodeThatWaitAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthenticator(&apiServer{})
		of := context.WithValue(t.Context(), identityKey{}, Identity{"akri-agent", "node-a"})
		report := func(bytes int) proto.Message {
			return &instancev1.ReportDevicesRequest{Node: "node-a", Devices: []*discoveryv1.Device{{Id: strings.Repeat("x", bytes)}}}
		}
		for range messageBurst >> 20 {
			require.NoError(t, a.checkMessage(of, report(1<<20)))
		}

		var waited, refused atomic.Int32
		var group sync.WaitGroup
		for i := range 2 * maxCalls {
			size := 4 << 20
			if i%2 == 0 {
				size = 1
			}
			group.Go(func() {
				began := time.Now()
				err := a.checkMessage(of, report(size))
				if err == nil {
					waited.Add(1)
					return
				}
				refused.Add(1)
				assert.Equal(t, codes.ResourceExhausted, status.Code(err))
				assert.Zero(t, time.Since(began))
			})
		}
		group.Wait()
		require.EqualValues(t, maxCalls-maxWaiting, refused.Load())
		require.EqualValues(t, maxCalls+maxWaiting, waited.Load())
		require.NoError(t, a.checkMessage(of, report(4<<20)), "none waits any more")
		require.Zero(t, a.waiting.Keys())
	})
}

// The calls of a node are also limited before their messages are received.
func TestCallsAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthenticator(&apiServer{})
		begin := func(token string) (end func(), err error) {
			ctx, end := context.WithCancel(callWith(token, "10.0.0.1"))
			_, err = a.admit(ctx, &tap.Info{Header: metadata.Pairs("authorization", "Bearer "+token)})
			return end, err
		}
		known := newToken(0, time.Hour)
		_, err := a.identify(callWith(known, "10.0.0.1"))
		require.NoError(t, err)
		for token, limit := range map[string]int{known: maxCalls, newToken(1, time.Hour): 64 / unverifiedShare} {
			var ends []func()
			for range limit {
				end, err := begin(token)
				require.NoError(t, err)
				ends = append(ends, end)
			}
			_, err := begin(token)
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.ErrorContains(t, err, fmt.Sprintf("has %d calls in progress", limit))
			ends[0]()
			synctest.Wait()
			ends[0], err = begin(token)
			require.NoError(t, err)
			for _, end := range ends {
				end()
			}
			synctest.Wait()
			require.Zero(t, a.admitted.Keys())
		}
	})
}

func TestInvalidTokensAreNotReviewed(t *testing.T) {
	api := &apiServer{}
	a := newAuthenticator(api)
	claims := func(text string) string { return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".c2ln" }
	for token, reason := range map[string]Reason{
		"":                                       ReasonToken,
		"a.b":                                    ReasonToken,
		"a.b.c":                                  ReasonToken,
		"a.!.c":                                  ReasonToken,
		claims(`[]`):                             ReasonToken,
		claims(`{"aud":1}`):                      ReasonToken,
		claims(`{"aud":"api"}`):                  ReasonAudience,
		claims(`{"aud":"akri-instance-writer"}`): ReasonExpired,
		claims(`{"aud":["akri-instance-writer"],"exp":99999999999,"sub":"system:serviceaccount:kube-system:akri-agent"}`): ReasonAccount,
		newToken(0, -time.Second): ReasonExpired,
	} {
		_, err := a.identify(callWith(token, "10.0.0.1"))
		require.Equal(t, reason, reasonOf(err), "%q: %v", token, err)
	}
	_, err := a.identify(context.Background())
	require.Equal(t, ReasonNoToken, reasonOf(err))
	require.Zero(t, api.reviews)
}
