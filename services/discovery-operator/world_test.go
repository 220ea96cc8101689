package operator_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/gentype"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"
	operator "akri.sh/services/discovery-operator"
)

const (
	node    = "node-a"
	soon    = 10 * time.Second
	tick    = 2 * time.Millisecond
	forever = time.Hour
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// world is everything around one discovery-operator, and the namespace that is the test's own.
type world struct {
	t         *testing.T
	namespace string
	config    operator.Config
	registrar *fakeRegistrar
	writer    *fakeWriter
	metrics   *prometheus.Registry
	warnings  *observer.ObservedLogs
	stop      func()
}

func newWorld(t *testing.T, grace time.Duration) *world {
	t.Helper()
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, current, // connections to the API server that are kept for the next test
			goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"))
	})
	w := &world{t: t, registrar: &fakeRegistrar{}, writer: &fakeWriter{}}
	w.namespace = w.newNamespace()
	w.config = operator.Config{
		Socket:    "unix://" + filepath.Join(t.TempDir(), "o.sock"),
		Registrar: rpctest.Serve(t, w.registrar.register), InstanceWriter: rpctest.Serve(t, w.writer.register),
		NodeName: node, HandlerGrace: grace, Flags: kube.Flags{REST: server.Config()},
	}
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.metrics = prometheus.NewRegistry()
	s, err := operator.New(w.config, service.Env{Log: w.logger(), Metrics: w.metrics, Health: &admin.Health{}})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(w.t, <-done)
		}
	}
	w.t.Cleanup(w.stop)
}

// logger logs to the test, and notes warnings and worse.
func (w *world) logger() *zap.Logger {
	core, warnings := observer.New(zap.WarnLevel)
	w.warnings = warnings
	return zaptest.NewLogger(w.t, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })))
}

func (w *world) newNamespace() string {
	w.t.Helper()
	client, err := kube.NewClient(server.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.AddToScheme,
		func() *corev1.Namespace { return &corev1.Namespace{} }, func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
	require.NoError(w.t, err)
	created, err := client.In("").Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return created.Name
}

func (w *world) configurations(namespace string) *gentype.ClientWithList[*akriv0.Configuration, *akriv0.ConfigurationList] {
	w.t.Helper()
	client, err := kube.Configurations(server.Config())
	require.NoError(w.t, err)
	return client.In(namespace)
}

// apply creates a Configuration with the test's own name and removes it with the test.
func (w *world) apply(namespace, name, handler, details string, properties ...akriv0.DiscoveryProperty) string {
	w.t.Helper()
	_, err := w.configurations(namespace).Create(w.t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{
			Name: handler, DiscoveryDetails: details, DiscoveryProperties: properties,
		}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		_ = w.configurations(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return namespace + "/" + name
}

func (w *world) edit(key string, change func(*akriv0.ConfigurationSpec)) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	configuration, err := w.configurations(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	change(&configuration.Spec)
	_, err = w.configurations(namespace).Update(w.t.Context(), configuration, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

func (w *world) remove(key string) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	require.NoError(w.t, w.configurations(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

func (w *world) eventually(condition func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, condition, soon, tick, what)
}

// reported waits until the newest report on a Configuration is as wanted.
func (w *world) reported(key string, complete bool, ids ...string) *instancev1.ReportDevicesRequest {
	w.t.Helper()
	var last *instancev1.ReportDevicesRequest
	w.eventually(func() bool {
		reports := w.writer.of(key)
		if len(reports) == 0 {
			return false
		}
		last = reports[len(reports)-1]
		return last.GetComplete() == complete && sameIDs(last, ids)
	}, "report on "+key)
	return last
}

// problem waits until the newest report on a Configuration has the problem.
func (w *world) problem(key, reason string) *instancev1.Problem {
	w.t.Helper()
	var found *instancev1.Problem
	w.eventually(func() bool {
		reports := w.writer.of(key)
		if len(reports) == 0 {
			return false
		}
		for _, problem := range reports[len(reports)-1].GetProblems() {
			if problem.GetReason() == reason {
				found = problem
			}
		}
		return found != nil
	}, reason+" of "+key)
	return found
}

// never asserts that no report on a Configuration was complete without the device.
func (w *world) neverGone(key, id string) {
	w.t.Helper()
	for _, report := range w.writer.of(key) {
		if report.GetComplete() {
			require.True(w.t, hasID(report, id), "%s left: %v", id, report)
		}
	}
}

func sameIDs(report *instancev1.ReportDevicesRequest, ids []string) bool {
	for _, id := range ids {
		if !hasID(report, id) {
			return false
		}
	}
	return len(report.GetDevices()) == len(ids)
}

func hasID(report *instancev1.ReportDevicesRequest, id string) bool {
	for _, device := range report.GetDevices() {
		if device.GetId() == id {
			return true
		}
	}
	return false
}
