// Package auth finds out who calls instance-writer. A caller sends the token of its service
// account, which the API server reviews. The token states the node on which the caller runs, and a
// call may name no other node.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/reviews"
	"akri.sh/libs/limits"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Audience of the tokens.
const Audience = "akri-instance-writer"

const (
	// reviewInterval is the age at which a verified token is reviewed again.
	reviewInterval = 2 * time.Minute
	// maxAge is the age until which a verified token is valid while the API server does not answer.
	maxAge = 10 * time.Minute
	// retryInterval is the time between two reviews of a token while the API server does not
	// answer.
	retryInterval = 10 * time.Second
	// invalidAge is the time for which an invalid token is not reviewed again.
	invalidAge = 10 * time.Second

	// maxCallers is more than the services of 1,000 nodes on one replica.
	maxCallers = 8192
	maxInvalid = 8192
	maxSources = 8192

	// New tokens are reviewed at this rate, after a burst for the nodes that connect to a replica
	// that has just started.
	newTokenRate, newTokenBurst = 20, 4 * 1024
	// maxNewReviews is the number of reviews of new tokens in progress. Others wait for
	// queueTimeout.
	maxNewReviews = 16
	queueTimeout  = 20 * time.Second
	// Shares of Options.PerSource for one address, so that one client with invalid tokens leaves
	// reviews to others: new tokens at once, new tokens a second, and calls in progress whose
	// tokens were not known when they began.
	tokenBurstShare, tokenRateShare, unverifiedShare = 2, 64, 8

	// The messages of one node are received at this rate in bytes a second, after a burst for the
	// reports on all Configurations when its streams open again. A small message and each slot in a
	// message count as minMessageBytes, because they cost time and writes to the API server.
	messageRate, messageBurst = 1 << 20, 16 << 20
	minMessageBytes           = 16 << 10
	maxNodes                  = 8192
	// maxWaiting is the number of messages of more than largeBytes of one node that wait: each
	// takes up to 20 MiB. A node sends them on one stream, and on the next one when that has
	// failed.
	largeBytes, maxWaiting = 64 << 10, 2
)

// Identity is who calls.
type Identity struct {
	// ServiceAccount is the name in the namespace of instance-writer.
	ServiceAccount string
	Node           string
}

// Options of an Authenticator.
type Options struct {
	// Namespace of the service accounts.
	Namespace string
	// Methods lists the service accounts that may call a method. Methods that it lacks are refused.
	Methods map[string][]string
	// Review asks the API server.
	Review Reviewer
	// NodeExists reports whether there is a Node of the name.
	NodeExists func(ctx context.Context, name string) (bool, error)
	// PerSource is the number of connections that one address can have. It scales the limits of
	// calls with unknown tokens of one address.
	PerSource int
	// Memory returns an error if there is not enough memory for another stream of the node.
	Memory func(node string) error
	// Refused counts refused calls by reason.
	Refused *prometheus.CounterVec
	Log     *zap.Logger
}

// Authenticator identifies callers.
type Authenticator struct {
	Options

	callers  *reviews.Kept[Identity] // by digest of the token
	sources  *kube.RateLimits        // of new tokens by address
	nodes    *kube.RateLimits        // of messages by node
	newToken *rate.Limiter
	// newReviews limits the reviews of new tokens in progress.
	newReviews *semaphore.Weighted
	logs       map[Reason]*rate.Sometimes
	// admitted counts the calls in progress whose messages can be received.
	admitted *limits.Counter[sender]
	// waiting counts the large messages of nodes that are delayed.
	waiting *limits.Counter[sender]

	mu sync.Mutex
	// calls are the calls in progress by node.
	calls map[string]map[*call]struct{}
}

// New returns an Authenticator.
func New(options Options) *Authenticator {
	a := &Authenticator{
		Options: options,
		callers: reviews.Keep[Identity](reviews.Options{
			MaxResults: maxCallers, MaxRefusals: maxInvalid, Refused: isInvalid, RefusalAge: invalidAge,
			Interval: reviewInterval, MaxAge: maxAge, RetryInterval: retryInterval,
		}),
		sources: kube.NewRateLimits(
			maxSources, rate.Limit(options.PerSource)/tokenRateShare, options.PerSource/tokenBurstShare),
		nodes:    kube.NewRateLimits(maxNodes, messageRate, messageBurst),
		newToken: rate.NewLimiter(newTokenRate, newTokenBurst), newReviews: semaphore.NewWeighted(maxNewReviews),
		logs: map[Reason]*rate.Sometimes{}, calls: map[string]map[*call]struct{}{}, admitted: limits.NewCounter[sender](),
		waiting: limits.NewCounter[sender](),
	}
	for _, reason := range reasons {
		options.Refused.WithLabelValues(string(reason))
		a.logs[reason] = &rate.Sometimes{First: 5, Interval: 10 * time.Second}
	}
	return a
}

type identityKey struct{}

// authenticate checks that the caller may call the method. The identity is in the returned context.
func (a *Authenticator) authenticate(ctx context.Context, method string) (context.Context, error) {
	identity, err := a.identify(ctx)
	if err == nil && !slices.Contains(a.Methods[method], identity.ServiceAccount) {
		err = refuse(ReasonMethod, "service account %q may not call %s", identity.ServiceAccount, method)
	}
	if err != nil {
		return nil, a.report(ctx, identity, err)
	}
	if verified, ok := ctx.Value(verifiedKey{}).(func()); ok {
		verified()
	}
	return context.WithValue(ctx, identityKey{}, identity), nil
}

func (a *Authenticator) identify(ctx context.Context) (Identity, error) {
	token, err := middleware.AuthFromMD(ctx, "bearer")
	if err != nil {
		return Identity{}, refuse(ReasonNoToken, "send a service account token with the audience %s: authorization: bearer TOKEN", Audience)
	}
	expires, err := a.parse(token, time.Now())
	if err != nil {
		return Identity{}, err
	}
	return a.callers.Get(ctx, digest(token), expires, func(ctx context.Context, known bool) (Identity, error) {
		if known {
			return a.verify(ctx, token)
		}
		return a.verifyNew(ctx, token)
	})
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return string(sum[:])
}

// awaitMessage delays the messages of a node that sends too many. Flow control then slows down the
// node.
func (a *Authenticator) awaitMessage(ctx context.Context, node string, message any) error {
	bytes := 0
	if encoded, ok := message.(proto.Message); ok {
		bytes = proto.Size(encoded)
	}
	size := max(bytes, minMessageBytes)
	if slots, ok := message.(interface {
		GetClaims() []*instancev1.SlotClaim
	}); ok {
		size = max(size, minMessageBytes*len(slots.GetClaims()))
	}
	if bytes > largeBytes {
		end, ok := a.waiting.Add(sender{node: node}, maxWaiting)
		if !ok {
			return refuse(ReasonMessages, "%d messages of node %q with more than %d bytes wait", maxWaiting, node, largeBytes)
		}
		defer end()
	}
	if err := a.nodes.Of(node).WaitN(ctx, min(size, messageBurst)); err != nil {
		return refuse(ReasonMessages, "node %q sends more than %d bytes a second", node, messageRate)
	}
	return nil
}

// verifyNew verifies a token that is not known. Only some of these reviews run at once, so that
// they do not overload the API server when all nodes connect.
func (a *Authenticator) verifyNew(ctx context.Context, token string) (Identity, error) {
	_, source := peerOf(ctx)
	if !a.sources.Of(source).Allow() || !a.newToken.Allow() {
		return Identity{}, refuse(ReasonRate, "too many new tokens; retry later")
	}
	waiting, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	if a.newReviews.Acquire(waiting, 1) != nil {
		return Identity{}, refuse(ReasonUnavailable, "review token: waited %s for other reviews", queueTimeout)
	}
	defer a.newReviews.Release(1)
	return a.verify(ctx, token)
}

// verify asks the API server about a token.
func (a *Authenticator) verify(ctx context.Context, token string) (Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	identity, err := a.Review(ctx, token, a.Namespace)
	if err != nil {
		return identity, unavailable(err)
	}
	exists, err := a.NodeExists(ctx, identity.Node)
	if err == nil && !exists {
		err = refuse(ReasonUnknownNode, "there is no Node %q", identity.Node)
	}
	return identity, unavailable(err)
}

// NodeDeleted forgets the callers of a node and ends their calls.
func (a *Authenticator) NodeDeleted(node string) {
	a.callers.Forget(func(caller Identity) bool { return caller.Node == node })
	a.endCalls(node)
}

// report counts and logs a refused call and returns its gRPC status.
func (a *Authenticator) report(ctx context.Context, identity Identity, err error) error {
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		return toStatus(err)
	}
	a.Refused.WithLabelValues(string(refusal.Reason)).Inc()
	a.logs[refusal.Reason].Do(func() {
		method, _ := grpc.Method(ctx)
		endpoint, _ := peerOf(ctx)
		a.Log.Warn("call refused", zap.String("reason", string(refusal.Reason)), zap.String("method", method),
			zap.String("endpoint", endpoint), zap.String("service_account", identity.ServiceAccount),
			zap.String("node", identity.Node), zap.Error(err))
	})
	return toStatus(err)
}

// peerOf returns the address of the caller, with and without the port.
func peerOf(ctx context.Context) (address, source string) {
	if caller, ok := peer.FromContext(ctx); ok {
		return caller.Addr.String(), limits.Source(caller.Addr)
	}
	return "", ""
}
