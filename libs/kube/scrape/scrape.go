// Package scrape lets clients read the metrics of a service that the API server authorizes, as the
// components of Kubernetes do: a TokenReview finds the user of a token, and a SubjectAccessReview
// whether the user may get /metrics.
package scrape

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube/reviews"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
)

// Config has the flags of a service, with the prefix metrics-.
type Config struct {
	Address string `help:"Address of /metrics with TLS, for clients with the token of a user who may get /metrics. Empty: /metrics is served at the admin address, for anyone." placeholder:"HOST:PORT"`
}

// right is what the ClusterRole akri-metrics-reader grants.
var right = reviews.Right{Verb: "get", Path: "/metrics"}

// Reasons of refused requests.
const (
	noToken            = "NoToken"
	invalidToken       = "InvalidToken"
	forbidden          = "Forbidden"
	tooManyTokens      = "TooManyTokens"
	tooManyConnections = "TooManyConnections"
	reviewFailed       = "ReviewFailed"
)

var codes = map[string]int{
	noToken: http.StatusUnauthorized, invalidToken: http.StatusUnauthorized, forbidden: http.StatusForbidden,
	tooManyTokens: http.StatusTooManyRequests, reviewFailed: http.StatusServiceUnavailable,
}

type guard struct {
	reviewer *reviews.Reviewer
	refused  *prometheus.CounterVec
	log      *zap.Logger
	// logged limits the log, because anyone can cause its lines.
	logged rate.Sometimes
}

// Enable makes the Guard of a process serve its metrics with the certificate of the service if the
// address is set. It sends no request.
func Enable(config Config, env service.Env, restConfig *rest.Config, certificate pki.Source) error {
	if config.Address == "" {
		return nil
	}
	register := promauto.With(env.Metrics)
	g := &guard{
		refused: register.NewCounterVec(prometheus.CounterOpts{
			Name: "akri_refused_scrapes_total",
			Help: "Requests and connections for metrics that were refused, by reason (see docs/security.md). Only with --metrics-address.",
		}, []string{"reason"}),
		log: env.Log, logged: rate.Sometimes{First: 5, Interval: 10 * time.Second},
	}
	for _, reason := range []string{noToken, invalidToken, forbidden, tooManyTokens, tooManyConnections, reviewFailed} {
		g.refused.WithLabelValues(reason)
	}
	var err error
	if g.reviewer, err = reviews.NewReviewer(restConfig, func(string, string) {}); err != nil {
		return err
	}
	*env.Guard = admin.Guard{
		Address: config.Address, Certificate: certificate, Admit: g.admit,
		RefusedConnections: g.refused.WithLabelValues(tooManyConnections),
	}
	return nil
}

func (g *guard) admit(metrics http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reason, err := g.review(r)
		if err == nil {
			metrics.ServeHTTP(w, r)
			return
		}

		g.refused.WithLabelValues(reason).Inc()
		g.logged.Do(func() {
			g.log.Warn("request for metrics refused",
				zap.String("reason", reason), zap.String("address", r.RemoteAddr), zap.Error(err))
		})
		if limit, limited := errors.AsType[*reviews.LimitError](err); limited {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limit.RetryAfter.Seconds()))))
		}
		if codes[reason] == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.Header().Set("Connection", "close") // idle connections count for the address
		message := err.Error()
		if reason == reviewFailed {
			message = "the API server does not answer, so the token cannot be verified"
		}
		http.Error(w, message, codes[reason])
	})
}

// review returns why a request is refused, or no error.
func (g *guard) review(r *http.Request) (reason string, err error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return noToken, errors.New("send a token: Authorization: Bearer TOKEN")
	}
	user, err := g.reviewer.User(r.Context(), token, r.RemoteAddr)
	if err != nil {
		return reasonOf(err), err
	}
	allowed, err := g.reviewer.Allowed(r.Context(), user, right)
	if err != nil {
		return reviewFailed, err
	}
	if !allowed {
		return forbidden, errors.New(user.Username + " may not get /metrics: bind it to the ClusterRole akri-metrics-reader")
	}
	return "", nil
}

func reasonOf(err error) string {
	if _, refused := errors.AsType[*reviews.Refusal](err); refused {
		return invalidToken
	}
	if _, limited := errors.AsType[*reviews.LimitError](err); limited {
		return tooManyTokens
	}
	return reviewFailed
}
