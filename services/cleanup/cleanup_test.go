package cleanup_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	"akri.sh/services/cleanup"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// kubeconfig names the test's API server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	config := server.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// start runs the program and returns its log and its outcome.
func start(t *testing.T, change func(*cleanup.Config)) (*observer.ObservedLogs, <-chan error) {
	t.Helper()
	config := cleanup.Config{
		Flags: kube.Flags{Kubeconfig: kubeconfig(t)}, Release: "akri", Namespace: "default", WritersTimeout: 20 * time.Second, Timeout: 30 * time.Second,
	}
	change(&config)
	core, logs := observer.New(zap.InfoLevel)
	s, err := cleanup.New(config, service.Env{Log: zap.New(core)})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(context.WithoutCancel(t.Context())) }()
	return logs, done
}

func unchanged(*cleanup.Config) {}

func TestRemovesWhatAkriMadeInEveryNamespaceAndNothingElse(t *testing.T) {
	w := newWorld(t)
	configuration := w.configuration("camera", "node-a", "example.com/kept")
	w.namespace("elsewhere")
	w.instance("default", "camera-000001", "node-a", "node-b")
	w.instance("elsewhere", "camera-000002")
	w.pod("broker", madeByAkri)
	w.pod("mine", nil)
	w.service("broker-svc", madeByAkri)
	w.service("mine", nil)
	w.job("broker-job", madeByAkri)
	w.lease("akri-broker-controller")
	w.lease("mine")

	logs, done := start(t, unchanged)
	require.NoError(t, <-done)

	require.Empty(t, names(w, w.instances))
	require.Equal(t, []string{"mine"}, names(w, w.pods))
	require.Equal(t, []string{"kubernetes", "mine"}, names(w, w.services))
	require.Empty(t, names(w, w.jobs))
	require.Equal(t, []string{"mine"}, names(w, w.leases))
	require.Equal(t, 5, logs.FilterMessage("removed").Len())

	kept, err := w.configurations.Get(t.Context(), configuration, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"example.com/kept"}, kept.Finalizers)
	require.Zero(t, kept.Status)
}

func TestNothingToRemoveIsASuccess(t *testing.T) {
	_, done := start(t, unchanged)
	require.NoError(t, <-done)
}

func TestWaitsForTheServicesThatWrite(t *testing.T) {
	w := newWorld(t)
	w.instance("default", "camera-000001")
	w.pod("writer", component("instance-writer", "akri"))

	logs, done := start(t, unchanged)
	require.Eventually(t, func() bool { return logs.FilterMessage("waiting for Akri's services to end").Len() > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"camera-000001"}, names(w, w.instances))

	now := int64(0)
	require.NoError(t, w.pods.Delete(t.Context(), "writer", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.NoError(t, <-done)
	require.Empty(t, names(w, w.instances))
}

func TestAServiceThatNeverEndsDoesNotStopIt(t *testing.T) {
	w := newWorld(t)
	w.instance("default", "camera-000001")
	w.pod("writer", component("broker-controller", "akri"))

	logs, done := start(t, func(c *cleanup.Config) { c.WritersTimeout = time.Second })
	require.NoError(t, <-done)
	require.Equal(t, 1, logs.FilterMessage("going on although services of Akri have not ended").Len())
	require.Empty(t, names(w, w.instances))
}

func TestLeavesEverythingToAnotherAkri(t *testing.T) {
	for _, name := range []string{"instance-writer", "agent"} {
		w := newWorld(t)
		w.instance("default", "camera-000001")
		w.pod("other-"+name, component(name, "other"))

		logs, done := start(t, unchanged)
		require.NoError(t, <-done)
		require.Equal(t, 1, logs.FilterMessage("leaving everything: another Akri runs in this cluster").Len())
		require.Equal(t, []string{"camera-000001"}, names(w, w.instances))
		w.clear()
	}
}

func TestSaysWhatItCannotRemove(t *testing.T) {
	w := newWorld(t)
	w.instance("default", "camera-000001", "example.com/foreign")

	_, done := start(t, func(c *cleanup.Config) { c.WritersTimeout, c.Timeout = time.Second, 2*time.Second })
	require.ErrorContains(t, <-done, "left: Instance default/camera-000001")
}

func TestRefusesAConfigThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		config cleanup.Config
		want   string
	}{
		"no release":    {cleanup.Config{}, "--release"},
		"no time left":  {cleanup.Config{Release: "akri", WritersTimeout: 2, Timeout: 1}, "--writers-timeout"},
		"no kubeconfig": {cleanup.Config{Release: "akri", WritersTimeout: 1, Timeout: 2, Flags: kube.Flags{Kubeconfig: "/missing"}}, "load API server access"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cleanup.New(c.config, service.Env{Log: zap.NewNop()})
			require.ErrorContains(t, err, c.want)
		})
	}
}
