package instancewriter_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube"
	"akri.sh/libs/pki"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
	"akri.sh/services/instance-writer/internal/certificates"
)

const (
	pollInterval = 10 * time.Millisecond

	audience = "akri-instance-writer"
	operator = "akri-discovery-operator"
	host     = "akri-device-plugin-host"
	agent    = "akri-agent"
)

// securedReplica is an instance-writer that serves with TLS only.
type securedReplica struct {
	testing.TB
	kubernetes kubernetes.Interface
	address    string
	ca         string // path of the CA bundle
	metrics    *prometheus.Registry
	logs       *observer.ObservedLogs
	health     *admin.Health
	guard      *admin.Guard
}

// startSecured starts a replica that reaches the API server at the host, with a Secret and a
// ConfigMap of its own.
func startSecured(t testing.TB, host string, lifetimes pki.Lifetimes) *securedReplica {
	t.Helper()
	config := api.Config()
	config.Host = host
	return startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: config}, NodeGrace: grace, TLS: instancewriter.TLSConfig{Name: createCA(t), Lifetimes: lifetimes},
	})
}

// createCA creates the empty Secret and ConfigMap, as the chart does, and returns their name.
func createCA(t testing.TB) string {
	t.Helper()
	return createCAIn(t, namespace, namespace)
}

// createCAIn is createCA with the namespaces of the Secret and the ConfigMap.
func createCAIn(t testing.TB, secrets, configMaps string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	object := metav1.ObjectMeta{GenerateName: "ca-"}
	secret, err := client.CoreV1().Secrets(secrets).Create(context.Background(), &corev1.Secret{ObjectMeta: object}, metav1.CreateOptions{})
	require.NoError(t, err)
	object = metav1.ObjectMeta{Name: secret.Name}
	_, err = client.CoreV1().ConfigMaps(configMaps).Create(context.Background(), &corev1.ConfigMap{ObjectMeta: object}, metav1.CreateOptions{})
	require.NoError(t, err)
	return secret.Name
}

func startSecuredWith(t testing.TB, config instancewriter.Config) *securedReplica {
	t.Helper()
	config.Address, config.Namespace, config.ConnectionsPerSource, config.MaxMessageBytes = ":0", cmp.Or(config.Namespace, namespace), 64, 4<<20
	config.TLS.Service = "akri-instance-writer"
	core, logs := observer.New(zap.InfoLevel)
	r := &securedReplica{TB: t, ca: filepath.Join(t.TempDir(), "ca.crt"), metrics: prometheus.NewRegistry(), logs: logs, health: &admin.Health{}, guard: &admin.Guard{}}
	var err error
	r.kubernetes, err = kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	writer, err := instancewriter.New(config, service.Env{Log: zap.New(core), Metrics: r.metrics, Health: r.health, Guard: r.guard})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- writer.Serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	require.Eventually(t, func() bool { return r.health.Ready(context.Background()) == nil }, timeout, 10*time.Millisecond)
	if config.TLS.Name != "" {
		r.mountCA(config.TLS.Name)
	}
	return r
}

// mountCA copies the ConfigMap, as the kubelet does.
func (r *securedReplica) mountCA(name string) {
	r.Helper()
	configMap, err := r.kubernetes.CoreV1().ConfigMaps(namespace).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(r, err)
	require.NoError(r, os.WriteFile(r.ca, []byte(configMap.Data[certificates.BundleKey]), 0o600))
}

// awaitCA waits until the ConfigMap has CA certificates and copies them.
func (r *securedReplica) awaitCA(name string) {
	r.Helper()
	require.Eventually(r, func() bool {
		configMap, err := r.kubernetes.CoreV1().ConfigMaps(namespace).Get(context.Background(), name, metav1.GetOptions{})
		return err == nil && configMap.Data[certificates.BundleKey] != ""
	}, timeout, pollInterval)
	r.mountCA(name)
}

// bearer sends a token.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return true }

func (r *securedReplica) dial(token string, options ...grpc.DialOption) *grpc.ClientConn {
	r.Helper()
	tls, err := credentials.NewClientTLSFromFile(r.ca, "akri-instance-writer")
	require.NoError(r, err)
	all := append([]grpc.DialOption{grpc.WithTransportCredentials(tls)}, options...)
	if token != "" {
		all = append(all, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient(r.address, all...)
	require.NoError(r, err)
	r.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *securedReplica) client(token string) instancev1.InstanceServiceClient {
	r.Helper()
	return instancev1.NewInstanceServiceClient(r.dial(token))
}

// token returns a token of a service account, bound to a Pod on the node. Without node it is bound
// to nothing.
func token(t testing.TB, inNamespace, account, node, audience string) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	ctx := context.Background()
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: inNamespace}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), err)
	_, err = client.CoreV1().ServiceAccounts(inNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if node != "" {
		pod, err := client.CoreV1().Pods(inNamespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "caller-"},
			Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = client.CoreV1().Pods(inNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		})
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	created, err := client.CoreV1().ServiceAccounts(inNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	require.NoError(t, err)
	return created.Status.Token
}

// forge changes the claims of a token, whose signature is then wrong.
func forge(t testing.TB, token string, change func(claims map[string]any)) string {
	t.Helper()
	parts := strings.Split(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	claims := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &claims))
	change(claims)
	text, err = json.Marshal(claims)
	require.NoError(t, err)
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString(text) + "." + parts[2]
}

// refusals returns the number of refused calls with the reason.
func (r *securedReplica) refusals(reason string) float64 {
	r.Helper()
	return r.value("akri_refused_calls_total", reason)
}

func (r *securedReplica) refusedConnections() float64 {
	r.Helper()
	return r.value("akri_refused_connections_total")
}

// value returns the value of a counter or gauge with the label values, in the order of the labels'
// names.
func (r *securedReplica) value(name string, labels ...string) float64 {
	r.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return 0
}

var slow = pki.Lifetimes{CA: time.Hour, Server: 10 * time.Minute, Publish: 5 * time.Minute}

// Each call of an untrusted client is refused with its reason, counted and logged. Nothing changes.
func TestCallsAreRefused(t *testing.T) {
	f := newFixture(t, 2, 2)
	plain := start(t, grace)
	f.reportShared("foo", plain)
	name, node, other := f.instanceName("foo"), f.nodes[0], f.nodes[1]
	require.NoError(t, reserve(plain, other, claim(name, 0)))
	before := f.get(name)

	r := startSecured(t, api.Config().Host, slow)
	own := token(t, namespace, host, node, audience)
	for title, c := range map[string]struct {
		token, node, reason string
		code                codes.Code
	}{
		"no token":                {"", other, "NoToken", codes.Unauthenticated},
		"no JWT":                  {"secret", other, "InvalidToken", codes.Unauthenticated},
		"wrong audience":          {token(t, namespace, host, other, "another"), other, "WrongAudience", codes.Unauthenticated},
		"token of the API server": {token(t, namespace, host, other, "https://kubernetes.default.svc.cluster.local"), other, "WrongAudience", codes.Unauthenticated},
		"expired": {forge(t, own, func(claims map[string]any) { claims["exp"] = time.Now().Add(-time.Minute).Unix() }),
			node, "TokenExpired", codes.Unauthenticated},
		"forged node": {forge(t, own, func(claims map[string]any) {
			claims["kubernetes.io"].(map[string]any)["node"].(map[string]any)["name"] = other
		}), other, "InvalidToken", codes.Unauthenticated},
		"another service account":      {token(t, namespace, "tenant", other, audience), other, "MethodNotAllowed", codes.PermissionDenied},
		"another service":              {token(t, namespace, operator, other, audience), other, "MethodNotAllowed", codes.PermissionDenied},
		"same name, another namespace": {token(t, "tenant", host, other, audience), other, "UnknownServiceAccount", codes.PermissionDenied},
		"bound to no Pod":              {token(t, namespace, host, "", audience), other, "TokenWithoutNode", codes.PermissionDenied},
		"Node does not exist":          {token(t, namespace, host, "f-absent", audience), "f-absent", "UnknownNode", codes.PermissionDenied},
		"another node":                 {own, other, "OtherNode", codes.PermissionDenied},
		"no node":                      {own, "", "OtherNode", codes.PermissionDenied},
		"agent of another node":        {token(t, namespace, agent, node, audience), other, "OtherNode", codes.PermissionDenied},
	} {
		t.Run(title, func(t *testing.T) {
			refused, client := r.refusals(c.reason), r.client(c.token)
			_, err := client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: c.node, Claims: []*instancev1.SlotClaim{claim(name, 0)}})
			require.Equal(t, c.code, status.Code(err), err)
			watch, err := client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: c.node})
			require.NoError(t, err)
			_, err = watch.Recv()
			require.Equal(t, c.code, status.Code(err), err)
			require.InDelta(t, refused+2, r.refusals(c.reason), 0)
			require.NotEmpty(t, r.logs.FilterMessage("call refused").FilterField(zap.String("reason", c.reason)).All())
		})
	}
	t.Run("report for another node", func(t *testing.T) {
		stream, err := r.client(token(t, namespace, operator, node, audience)).ReportDevices(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(f.newReport(node, f.device(node, "foo", true))))
		_, err = stream.Recv()
		require.NoError(t, err)
		require.NoError(t, stream.Send(f.newReport(other)))
		_, err = stream.Recv()
		require.Equal(t, codes.PermissionDenied, status.Code(err), err)
	})
	t.Run("plain text", func(t *testing.T) {
		conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		_, err = instancev1.NewInstanceServiceClient(conn).ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: other})
		require.Equal(t, codes.Unavailable, status.Code(err), err)
	})
	t.Run("reflection", func(t *testing.T) {
		stream, err := reflectionv1.NewServerReflectionClient(r.dial(own)).ServerReflectionInfo(t.Context())
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, codes.PermissionDenied, status.Code(err), err)
	})
	require.Equal(t, before, f.get(name))
	for _, entry := range r.logs.All() {
		require.NotContains(t, fmt.Sprint(entry.ContextMap()), own)
	}
}

// A node calls with the tokens of its services.
func TestIdentityIsAccepted(t *testing.T) {
	f := newFixture(t, 2, 1)
	r := startSecured(t, api.Config().Host, slow)
	node, name := f.nodes[0], f.instanceName("foo")
	_, err := healthv1.NewHealthClient(r.dial("")).Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err, "health needs no identity")
	for _, accounts := range [][2]string{{operator, host}, {agent, agent}} {
		reports, err := r.client(token(t, namespace, accounts[0], node, audience)).ReportDevices(t.Context())
		require.NoError(t, err)
		require.NoError(t, reports.Send(f.newReport(node, f.device(node, "foo", true))))
		_, err = reports.Recv()
		require.NoError(t, err)
		client := r.client(token(t, namespace, accounts[1], node, audience))
		_, err = client.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{Node: node, Claims: []*instancev1.SlotClaim{claim(name, 0)}})
		require.NoError(t, err)
		watch, err := client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: node})
		require.NoError(t, err)
		snapshot, err := watch.Recv()
		require.NoError(t, err)
		require.Len(t, snapshot.GetSnapshot().GetInstances(), 1)
	}
}

// The streams of a node end when it is deleted, and its token is refused.
func TestDeletedNodeLosesAccess(t *testing.T) {
	f := newFixture(t, 1, 1)
	r := startSecured(t, api.Config().Host, slow)
	node := f.nodes[0]
	client := r.client(token(t, namespace, host, node, audience))
	watch, err := client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: node})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	require.NoError(t, f.nodeClient.In("").Delete(t.Context(), node, metav1.DeleteOptions{}))
	_, err = watch.Recv()
	require.Error(t, err)
	_, err = client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: node})
	require.Equal(t, codes.PermissionDenied, status.Code(err), err)
	require.InDelta(t, 1, r.refusals("UnknownNode"), 0)
}

// Certificates are renewed every few seconds, and the CA too. A client that reads the CA bundle
// with a delay connects at any time.
func TestCertificatesRotate(t *testing.T) {
	name := createCA(t)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, TLS: instancewriter.TLSConfig{
			Name: name, Lifetimes: pki.Lifetimes{CA: 12 * time.Second, Server: 2 * time.Second, Publish: 2 * time.Second},
		},
	})
	leaves, cas := map[string]bool{}, map[string]bool{}
	mounted := time.Now()
	for len(cas) < 3 || len(leaves) < 6 {
		if time.Since(mounted) > time.Second { // later than the publication and before the signature
			r.mountCA(name)
			mounted = time.Now()
		}
		leaf, err := r.handshake()
		require.NoError(t, err)
		leaves[leaf] = true
		bundle, err := os.ReadFile(r.ca)
		require.NoError(t, err)
		cas[string(bundle)] = true
	}
	require.NoError(t, r.health.Ready(t.Context()))
}

// handshake connects with the mounted CA bundle and returns the serial number of the server.
func (r *securedReplica) handshake() (string, error) {
	tls, err := credentials.NewClientTLSFromFile(r.ca, "akri-instance-writer")
	require.NoError(r, err)
	conn, err := net.Dial("tcp", r.address)
	require.NoError(r, err)
	secured, info, err := tls.ClientHandshake(context.Background(), "akri-instance-writer", conn)
	if err != nil {
		return "", errors.Join(err, conn.Close())
	}
	defer secured.Close()
	return info.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.String(), nil
}

// While the API server does not answer, known tokens are valid and new ones are not.
func TestKnownTokensOutliveTheAPIServer(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	r := startSecured(t, apiProxy.URL, slow)
	node := f.nodes[0]
	known, fresh := r.client(token(t, namespace, host, node, audience)), r.client(token(t, namespace, host, node, audience))
	call := func(client instancev1.InstanceServiceClient) error {
		watch, err := client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: node})
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	}
	require.NoError(t, call(known))
	var reviews atomic.Int64
	apiProxy.rejectIf(func(r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			reviews.Add(1)
			return true
		}
		return false
	})
	for range 10 {
		require.NoError(t, call(known))
	}
	require.Zero(t, reviews.Load(), "a token is reviewed once in two minutes")
	require.Equal(t, codes.Unavailable, status.Code(call(fresh)))
	require.InDelta(t, 1, r.refusals("ReviewFailed"), 0)
	apiProxy.rejectIf(func(*http.Request) bool { return false })
	require.NoError(t, call(fresh), "an answer of the API server is not missing any more")
}

// Certificates of cert-manager are read from files that change.
func TestCertificatesFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func() (ca []byte) {
		authority, err := pki.NewCA(time.Now(), "ca", time.Hour)
		require.NoError(t, err)
		server, err := pki.NewServer(time.Now(), authority, "server", time.Hour, []string{"akri-instance-writer"})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), server.CertificatePEM, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tls.key"), server.KeyPEM, 0o600))
		return authority.CertificatePEM
	}
	first := write()
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, TLS: instancewriter.TLSConfig{Dir: dir},
	})
	require.NoError(t, os.WriteFile(r.ca, first, 0o600))
	_, err := r.handshake()
	require.NoError(t, err)
	second := write()
	_, err = r.handshake()
	require.ErrorContains(t, err, "unknown authority", "the new certificate is used at once")
	require.NoError(t, os.WriteFile(r.ca, second, 0o600))
	_, err = r.handshake()
	require.NoError(t, err)
	require.NoError(t, r.health.Ready(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(dir, "tls.key")))
	require.ErrorContains(t, r.health.Ready(t.Context()), "read server certificate: open "+filepath.Join(dir, "tls.key"))
}
