package scrape_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/kube/scrape"
	"akri.sh/libs/listentest"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	namespace = "default"
	deadline  = 20 * time.Second
)

// process is a process that serves metrics to authorized clients.
type process struct {
	*testing.T
	kubernetes kubernetes.Interface
	address    string
	registry   *prometheus.Registry
	logs       *observer.ObservedLogs
	// admitted is the handler of the metrics.
	admitted http.Handler
	// tokens and rights count the reviews that the API server got.
	tokens, rights atomic.Int32
}

// start serves until the end of the test.
func start(t *testing.T) *process {
	t.Helper()
	kubetest.NoLeaks(t)
	core, logs := observer.New(zap.DebugLevel)
	p := &process{T: t, address: listentest.Address(t), registry: prometheus.NewRegistry(), logs: logs}
	var err error
	p.kubernetes, err = kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			switch {
			case strings.HasSuffix(request.URL.Path, "/tokenreviews"):
				p.tokens.Add(1)
			case strings.HasSuffix(request.URL.Path, "/subjectaccessreviews"):
				p.rights.Add(1)
			}
			return next.RoundTrip(request)
		})
	})

	now := time.Now()
	ca, err := pki.NewCA(now, "ca", time.Hour)
	require.NoError(t, err)
	certificate, err := pki.NewServer(now, ca, "server", time.Hour, []string{"localhost"})
	require.NoError(t, err)
	var current pki.Current
	current.Store(certificate)
	env := service.Env{Log: zap.New(core), Metrics: p.registry, Guard: &admin.Guard{}}
	require.NoError(t, scrape.Enable(scrape.Config{Address: p.address}, env, config, current.GetCertificate))
	p.admitted = env.Guard.Admit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- env.Guard.Serve(ctx, p.registry) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-stopped) })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", p.address)
		return err == nil && conn.Close() == nil
	}, deadline, 5*time.Millisecond)
	return p
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// get sends a request with an Authorization header, unless it is empty.
func (p *process) get(authorization string) (code int, body string) {
	p.Helper()
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, "https://"+p.address+"/metrics", nil)
	require.NoError(p, err)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := client.Do(request)
	require.NoError(p, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p, err)
	return response.StatusCode, string(text)
}

// client verifies no certificate; the tests of the services do.
var client = &http.Client{Timeout: deadline, Transport: &http.Transport{
	DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
}}

func (p *process) refused(reason string) float64 {
	p.Helper()
	families, err := p.registry.Gather()
	require.NoError(p, err)
	for _, metric := range families[0].GetMetric() {
		if metric.GetLabel()[0].GetValue() == reason {
			return metric.GetCounter().GetValue()
		}
	}
	p.Fatalf("no counter for %s", reason)
	return 0
}

// account creates a service account and returns a token of it.
func (p *process) account(name string, audiences ...string) string {
	p.Helper()
	accounts := p.kubernetes.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(p.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(p, err)
	p.Cleanup(func() { _ = accounts.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	token, err := accounts.CreateToken(p.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
	}, metav1.CreateOptions{})
	require.NoError(p, err)
	return token.Status.Token
}

// grant lets a service account get a path, as the ClusterRole of the chart does.
func (p *process) grant(account, path string) {
	p.Helper()
	meta, rbac := metav1.ObjectMeta{Name: account}, p.kubernetes.RbacV1()
	_, err := rbac.ClusterRoles().Create(p.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{path}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	require.NoError(p, err)
	p.Cleanup(func() {
		require.NoError(p, rbac.ClusterRoles().Delete(context.Background(), account, metav1.DeleteOptions{}))
	})
	_, err = rbac.ClusterRoleBindings().Create(p.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	require.NoError(p, err)
	p.Cleanup(func() {
		require.NoError(p, rbac.ClusterRoleBindings().Delete(context.Background(), account, metav1.DeleteOptions{}))
	})
	// The authorizer of the API server reads roles from a cache.
	require.Eventually(p, func() bool {
		review, err := p.kubernetes.AuthorizationV1().SubjectAccessReviews().Create(p.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:                  "system:serviceaccount:" + namespace + ":" + account,
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	}, deadline, 10*time.Millisecond)
}

// expired returns a token with another time of expiry, and therefore with a wrong signature.
func expired(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1700000000}`))
	return strings.Join(parts, ".")
}

// Each client that is not authorized gets no metric, a reason that is counted and logged, and no
// token in the log.
func TestMetricsAreRefused(t *testing.T) {
	p := start(t)
	reader, other := p.account("reader"), p.account("without-right")
	elsewhere := p.account("another-path")
	audience := p.account("another-audience", "akri-instance-writer")
	deleted := p.account("deleted")
	p.grant("reader", "/metrics")
	p.grant("another-path", "/metrics/other")
	p.grant("another-audience", "/metrics")
	p.grant("deleted", "/metrics")
	require.NoError(t, p.kubernetes.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "deleted", metav1.DeleteOptions{}))

	for name, c := range map[string]struct {
		authorization, reason, message string
		code                           int
	}{
		"no token":                 {"", "NoToken", "send a token", http.StatusUnauthorized},
		"no token after scheme":    {"Bearer ", "NoToken", "send a token", http.StatusUnauthorized},
		"another scheme":           {"Basic " + reader, "NoToken", "send a token", http.StatusUnauthorized},
		"the token alone":          {reader, "NoToken", "send a token", http.StatusUnauthorized},
		"no token at all":          {"Bearer a b", "InvalidToken", "this is not a token", http.StatusUnauthorized},
		"a large token":            {"Bearer " + strings.Repeat("a", 17<<10), "InvalidToken", "this is not a token", http.StatusUnauthorized},
		"an unknown token":         {"Bearer unknown", "InvalidToken", "does not accept", http.StatusUnauthorized},
		"another signature":        {"Bearer " + reader[:len(reader)-8] + "AAAAAAAA", "InvalidToken", "does not accept", http.StatusUnauthorized},
		"an expired token":         {"Bearer " + expired(t, reader), "InvalidToken", "expired at 2023-11-14", http.StatusUnauthorized},
		"a token for another":      {"Bearer " + audience, "InvalidToken", "does not accept", http.StatusUnauthorized},
		"a deleted account":        {"Bearer " + deleted, "InvalidToken", "does not accept", http.StatusUnauthorized},
		"an account without right": {"Bearer " + other, "Forbidden", "akri-metrics-reader", http.StatusForbidden},
		"a right on another path":  {"Bearer " + elsewhere, "Forbidden", "akri-metrics-reader", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			before := p.refused(c.reason)
			code, body := p.get(c.authorization)
			require.Equal(t, c.code, code, body)
			require.Contains(t, body, c.message)
			require.NotContains(t, body, "akri_refused_scrapes_total")
			require.InDelta(t, 1, p.refused(c.reason)-before, 0)
		})
	}

	code, body := p.get("Bearer " + reader)
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "akri_refused_scrapes_total")
	require.NotZero(t, p.logs.Len())
	for _, entry := range p.logs.All() {
		text := fmt.Sprint(entry.Message, entry.ContextMap())
		for _, token := range []string{reader, other, audience} {
			require.NotContains(t, text, token[len(token)-20:])
		}
	}
}

// A scrape does not cause reviews while their results are kept.
func TestReviewsAreKept(t *testing.T) {
	p := start(t)
	token := p.account("often")
	p.grant("often", "/metrics")
	for range 20 {
		code, body := p.get("Bearer " + token)
		require.Equal(t, http.StatusOK, code, body)
	}
	require.EqualValues(t, 1, p.tokens.Load())
	require.EqualValues(t, 1, p.rights.Load())
}

// send sends a request of an address without a connection.
func (p *process) send(from, token string) (code int) {
	request := httptest.NewRequestWithContext(p.Context(), http.MethodGet, "/metrics", nil)
	request.RemoteAddr = from
	request.Header.Set("Authorization", "Bearer "+token)
	response := httptest.NewRecorder()
	p.admitted.ServeHTTP(response, request)
	return response.Code
}

// An address that sends invalid tokens as fast as it can causes few reviews, and keeps neither a
// known nor a new client of another address from reading the metrics.
func TestFloodOfOneAddress(t *testing.T) {
	p := start(t)
	known, fresh := p.account("known"), p.account("fresh")
	p.grant("known", "/metrics")
	p.grant("fresh", "/metrics")
	require.Equal(t, http.StatusOK, p.send("192.0.2.2:1", known))

	const clients, tokens = 8, 200
	var limited atomic.Int32
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for i := range tokens {
				switch code := p.send("192.0.2.1:1", fmt.Sprintf("invalid-%d-%d", client, i)); code {
				case http.StatusTooManyRequests:
					limited.Add(1)
				case http.StatusUnauthorized:
				default:
					t.Errorf("response %d", code)
				}
			}
		})
	}
	for range 50 {
		require.Equal(t, http.StatusOK, p.send("192.0.2.2:1", known))
	}
	require.Equal(t, http.StatusOK, p.send("192.0.2.3:1", fresh))
	group.Wait()
	// 10 tokens that are refused, those that are in review at the tenth, and the valid ones.
	require.LessOrEqual(t, p.tokens.Load(), int32(10+clients+2))
	require.GreaterOrEqual(t, limited.Load(), int32(clients*tokens-10-clients))
}

// Many addresses together cause a limited rate of reviews, and known clients read the metrics.
func TestFloodOfManyAddresses(t *testing.T) {
	p := start(t)
	known := p.account("known-among-many")
	p.grant("known-among-many", "/metrics")
	require.Equal(t, http.StatusOK, p.send("192.0.2.2:1", known))

	began := time.Now()
	for i := range 2000 {
		code := p.send(fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), fmt.Sprintf("invalid-%d", i))
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, code)
		if i%50 == 0 {
			require.Equal(t, http.StatusOK, p.send("192.0.2.2:1", known))
		}
	}
	require.LessOrEqual(t, float64(p.tokens.Load()), 1+100+10*time.Since(began).Seconds()+1)
}

// Connections without requests do not keep other addresses from reading the metrics.
func TestConnectionsOfAnAddressAreLimited(t *testing.T) {
	p := start(t)
	token := p.account("patient")
	p.grant("patient", "/metrics")
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	for range 100 {
		conn, err := dialer.DialContext(t.Context(), "tcp", p.address)
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return p.refused("TooManyConnections") >= 84 }, deadline, 10*time.Millisecond)
	code, body := p.get("Bearer " + token)
	require.Equal(t, http.StatusOK, code, body)
}

// While the API server does not answer, known clients read the metrics and others do not.
func TestAPIServerDoesNotAnswer(t *testing.T) {
	p := start(t)
	known, unknown := p.account("known-before"), p.account("unknown")
	p.grant("known-before", "/metrics")
	p.grant("unknown", "/metrics")
	code, body := p.get("Bearer " + known)
	require.Equal(t, http.StatusOK, code, body)

	require.NoError(t, server.Pause())
	resume := sync.OnceValue(server.Resume)
	defer func() { _ = resume() }()
	code, body = p.get("Bearer " + known)
	require.Equal(t, http.StatusOK, code, body)
	code, body = p.get("Bearer " + unknown)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "the API server does not answer, so the token cannot be verified\n", body)
	require.InDelta(t, 1, p.refused("ReviewFailed"), 0)
	require.NoError(t, resume())
	code, body = p.get("Bearer " + unknown)
	require.Equal(t, http.StatusOK, code, body)
}

func TestPlainTextIsRefused(t *testing.T) {
	p := start(t)
	response, err := http.Get("http://" + p.address + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics/", "/debug/pprof/"} {
		response, err := client.Get("https://" + p.address + path)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotFound, response.StatusCode, path)
	}
}

// Without an address nothing changes.
func TestDisabled(t *testing.T) {
	registry, guard := prometheus.NewRegistry(), &admin.Guard{}
	env := service.Env{Log: zap.NewNop(), Metrics: registry, Guard: guard}
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("not used") }
	require.NoError(t, scrape.Enable(scrape.Config{}, env, server.Config(), certificate))
	require.False(t, guard.Enabled())
	count, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Zero(t, count)
}
