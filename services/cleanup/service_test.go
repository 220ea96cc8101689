package cleanup_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	"akri.sh/services/cleanup"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// start runs the service and returns its log and its result.
func start(t *testing.T, options ...func(*cleanup.Config)) (*observer.ObservedLogs, <-chan error) {
	t.Helper()
	return startWith(context.WithoutCancel(t.Context()), t, options...)
}

func startWith(ctx context.Context, t *testing.T, options ...func(*cleanup.Config)) (*observer.ObservedLogs, <-chan error) {
	t.Helper()
	config := cleanup.Config{
		Flags: kube.Flags{REST: server.Config()}, Release: "akri", Namespace: "default", WritersTimeout: 20 * time.Second, Timeout: 30 * time.Second,
		Output: io.Discard,
	}
	for _, f := range options {
		f(&config)
	}
	core, logs := observer.New(zap.InfoLevel)
	s, err := cleanup.New(config, service.Env{Log: zap.New(core)})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return logs, done
}

func TestRemovesOnlyObjectsOfAkri(t *testing.T) {
	e := newTestEnv(t)
	configuration := e.configuration("camera", "node-a", "example.com/kept")
	e.namespace("elsewhere")
	e.instance("default", "camera-000001", "node-a", "node-b")
	e.instance("elsewhere", "camera-000002")
	e.pod("broker", createdByAkri)
	e.pod("mine", nil)
	e.service("broker-svc", createdByAkri)
	e.service("mine", nil)
	e.job("broker-job", createdByAkri)
	e.lease("akri-broker-controller")
	e.lease("akri-dra-controller")
	e.lease("mine")

	logs, done := start(t)
	require.NoError(t, <-done)

	require.Empty(t, names(e, e.instances))
	require.Equal(t, []string{"mine"}, names(e, e.pods))
	require.Equal(t, []string{"kubernetes", "mine"}, names(e, e.services))
	require.Empty(t, names(e, e.jobs))
	require.Equal(t, []string{"mine"}, names(e, e.leases))
	require.Equal(t, 5, logs.FilterMessage("removed").Len())

	kept, err := e.configurations.Get(t.Context(), configuration, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"example.com/kept"}, kept.Finalizers)
	require.Zero(t, kept.Status)
}

// TestEndingBrokersAreNotAwaited deletes a broker Pod on a lost node, which never ends.
func TestEndingBrokersAreNotAwaited(t *testing.T) {
	e := newTestEnv(t)
	e.instance("default", "camera-000001")
	e.podOn("lost", "broker", createdByAkri)

	var output bytes.Buffer
	_, done := start(t, func(c *cleanup.Config) { c.Output = &output })
	require.NoError(t, <-done)
	require.Empty(t, names(e, e.instances))
	broker, err := e.pods.Get(t.Context(), "broker", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, broker.DeletionTimestamp)
	require.Equal(t, "Removed the objects of Akri (Instances: 1, Services: 0, Pods: 1, Jobs: 0).\n", output.String())
}

func TestEmptyClusterIsASuccess(t *testing.T) {
	_, done := start(t)
	require.NoError(t, <-done)
}

func TestWaitsForWriters(t *testing.T) {
	e := newTestEnv(t)
	e.instance("default", "camera-000001")
	e.pod("writer", component("instance-writer", "akri"))

	logs, done := start(t)
	require.Eventually(t, func() bool { return logs.FilterMessage("waiting for the end of the release's Pods").Len() > 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"camera-000001"}, names(e, e.instances))

	now := int64(0)
	require.NoError(t, e.pods.Delete(t.Context(), "writer", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.NoError(t, <-done)
	require.Empty(t, names(e, e.instances))
}

func TestContinuesAfterWritersTimeout(t *testing.T) {
	e := newTestEnv(t)
	e.instance("default", "camera-000001")
	e.pod("writer", component("broker-controller", "akri"))

	logs, done := start(t, func(c *cleanup.Config) { c.WritersTimeout = time.Second })
	require.NoError(t, <-done)
	require.Equal(t, 1, logs.FilterMessage("continuing although Pods of the release have not ended").Len())
	require.Empty(t, names(e, e.instances))
}

func TestAnotherInstallationKeepsItsObjects(t *testing.T) {
	for _, name := range []string{"instance-writer", "agent"} {
		e := newTestEnv(t)
		e.instance("default", "camera-000001")
		e.pod("other-"+name, component(name, "other"))

		var output bytes.Buffer
		logs, done := start(t, func(c *cleanup.Config) { c.Output = &output })
		require.NoError(t, <-done)
		require.Equal(t, "Nothing removed: another installation of Akri runs in this cluster (Pod default/other-"+name+").\n", output.String())
		require.Equal(t, 1, logs.FilterMessage("nothing removed: another installation of Akri runs in this cluster").Len())
		require.Equal(t, []string{"camera-000001"}, names(e, e.instances))
		e.clear()
	}
}

func TestErrorListsRemainingObjects(t *testing.T) {
	e := newTestEnv(t)
	e.instance("default", "camera-000001", "example.com/foreign")

	var output bytes.Buffer
	_, done := start(t, func(c *cleanup.Config) { c.Output, c.WritersTimeout, c.Timeout = &output, time.Second, 2*time.Second })
	require.ErrorContains(t, <-done, "remaining: Instance default/camera-000001")
	require.Contains(t, output.String(), "remaining: Instance default/camera-000001")
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	for name, c := range map[string]struct {
		config  cleanup.Config
		message string
	}{
		"no release":    {cleanup.Config{}, "--release"},
		"no time left":  {cleanup.Config{Release: "akri", WritersTimeout: 2, Timeout: 1}, "--writers-timeout"},
		"no kubeconfig": {cleanup.Config{Release: "akri", WritersTimeout: 1, Timeout: 2, Flags: kube.Flags{Kubeconfig: "/missing"}}, "load API server access"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cleanup.New(c.config, service.Env{Log: zap.NewNop()})
			require.ErrorContains(t, err, c.message)
		})
	}
}
