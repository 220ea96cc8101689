package operator_test

import (
	"context"
	"os"
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

func TestMain(m *testing.M) {
	if address := os.Getenv(handlerProcessAddress); address != "" {
		runHandlerProcess(address)
		return
	}
	kubetest.Main(m, &server)
}

// harness runs one discovery-operator with a fake registrar and instance-writer, in a namespace of
// its own.
type harness struct {
	t         *testing.T
	namespace string
	config    operator.Config
	registrar *fakeRegistrar
	writer    *fakeWriter
	metrics   *prometheus.Registry
	warnings  *observer.ObservedLogs
	stop      func()
}

func newHarness(t *testing.T, grace time.Duration) *harness {
	t.Helper()
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		goleak.VerifyNone(t, current, // the next test uses the open connections to the API server
			goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"))
	})
	h := &harness{t: t, registrar: &fakeRegistrar{}, writer: &fakeWriter{}}
	h.namespace = h.newNamespace()
	h.config = operator.Config{
		Socket:    "unix://" + filepath.Join(t.TempDir(), "o.sock"),
		Registrar: rpctest.Serve(t, h.registrar.register), InstanceWriter: rpctest.Serve(t, h.writer.register),
		NodeName: node, HandlerGrace: grace, Flags: kube.Flags{REST: server.Config()},
	}
	return h
}

func (h *harness) start() {
	h.t.Helper()
	h.metrics = prometheus.NewRegistry()
	s, err := operator.New(h.config, service.Env{Log: h.logger(), Metrics: h.metrics, Health: &admin.Health{}})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	h.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(h.t, <-done)
		}
	}
	h.t.Cleanup(h.stop)
}

// logger logs to the test and records warnings and errors.
func (h *harness) logger() *zap.Logger {
	core, warnings := observer.New(zap.WarnLevel)
	h.warnings = warnings
	return zaptest.NewLogger(h.t, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })))
}

func (h *harness) newNamespace() string {
	h.t.Helper()
	client, err := kube.NewClient[corev1.Namespace, corev1.NamespaceList](
		server.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.AddToScheme)
	require.NoError(h.t, err)
	created, err := client.In("").Create(h.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	return created.Name
}

func (h *harness) configurations(namespace string) *gentype.ClientWithList[*akriv0.Configuration, *akriv0.ConfigurationList] {
	h.t.Helper()
	client, err := kube.Configurations(server.Config())
	require.NoError(h.t, err)
	return client.In(namespace)
}

// apply creates a Configuration and returns its key. The Configuration is deleted at the end of the
// test.
func (h *harness) apply(namespace, name, handler, details string, properties ...akriv0.DiscoveryProperty) string {
	h.t.Helper()
	_, err := h.configurations(namespace).Create(h.t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{
			Name: handler, DiscoveryDetails: details, DiscoveryProperties: properties,
		}},
	}, metav1.CreateOptions{})
	require.NoError(h.t, err)
	h.t.Cleanup(func() {
		_ = h.configurations(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return namespace + "/" + name
}

func (h *harness) edit(key string, change func(*akriv0.ConfigurationSpec)) {
	h.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	configuration, err := h.configurations(namespace).Get(h.t.Context(), name, metav1.GetOptions{})
	require.NoError(h.t, err)
	change(&configuration.Spec)
	_, err = h.configurations(namespace).Update(h.t.Context(), configuration, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

func (h *harness) remove(key string) {
	h.t.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	require.NoError(h.t, h.configurations(namespace).Delete(h.t.Context(), name, metav1.DeleteOptions{}))
}

func (h *harness) eventually(condition func() bool, what string) {
	h.t.Helper()
	require.Eventually(h.t, condition, soon, tick, what)
}

// reported waits until the last report of a Configuration has the devices and returns it.
func (h *harness) reported(key string, complete bool, ids ...string) *instancev1.ReportDevicesRequest {
	h.t.Helper()
	var last *instancev1.ReportDevicesRequest
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		if len(reports) == 0 {
			return false
		}
		last = reports[len(reports)-1]
		return last.GetComplete() == complete && sameIDs(last, ids)
	}, "report of "+key)
	return last
}

// problem waits until the last report of a Configuration has a problem with the reason and returns
// it.
func (h *harness) problem(key, reason string) *instancev1.Problem {
	h.t.Helper()
	var found *instancev1.Problem
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
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

// neverGone asserts that every complete report of a Configuration has the device.
func (h *harness) neverGone(key, id string) {
	h.t.Helper()
	for _, report := range h.writer.reportsOf(key) {
		if report.GetComplete() {
			require.True(h.t, hasID(report, id), "no device %s in the complete report %v", id, report)
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
