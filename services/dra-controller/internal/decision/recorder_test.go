package decision_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/kube/resources"
	"akri.sh/services/dra-controller/internal/controller"
	"akri.sh/services/dra-controller/internal/decision"
)

const timeout = time.Minute

// The addresses of two API servers and of their Service in a network of the test. The API server
// accepts no loopback address as that of an endpoint.
const first, second, service = "192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.100:443"

// noReconciler lets the tests write the addresses of the API servers.
const noReconciler = "--endpoint-reconciler-type=none"

// server, without and limited are API servers with one etcd. The second does not have Dynamic
// Resource Allocation, the third not all of its features.
var server, without, limited *kubetest.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if server, err = kubetest.Start(ctx, noReconciler); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Stop()
	for joined, flag := range map[**kubetest.Server]string{
		&without: "--runtime-config=resource.k8s.io/v1=false", &limited: "--feature-gates=DRAConsumableCapacity=false",
	} {
		if *joined, err = server.Join(ctx, noReconciler, flag); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer (*joined).Stop()
	}
	return m.Run()
}

// cluster is a cluster without a record.
type cluster struct {
	*testing.T
	clientset *kubernetes.Clientset

	mu sync.Mutex
	// routes are the servers that the addresses reach, one after the other.
	routes map[string][]*kubetest.Server
}

// start returns a cluster whose API servers have the addresses.
func start(t *testing.T, addresses ...string) *cluster {
	clientset, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	c := &cluster{T: t, clientset: clientset, routes: map[string][]*kubetest.Server{service: {server}}}
	_, err = clientset.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: akriv0.ResourcesConfigMap},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, clientset.CoreV1().ConfigMaps("default").Delete(context.Background(), akriv0.ResourcesConfigMap, metav1.DeleteOptions{}))
	})

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
	}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		require.NoError(c, err)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
	}
	_, err = clientset.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, clientset.DiscoveryV1().EndpointSlices("default").Delete(context.Background(), slice.Name, metav1.DeleteOptions{}))
	})
	return c
}

// route makes the address that of the servers, one connection each. Without servers it cannot be
// reached.
func (c *cluster) route(address string, servers ...*kubetest.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes[address] = servers
}

func (c *cluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	servers := c.routes[address]
	if len(servers) > 1 {
		c.routes[address] = append(servers[1:], servers[0])
	}
	c.mu.Unlock()
	if len(servers) == 0 {
		return nil, errors.New("no route to host")
	}
	target, err := url.Parse(servers[0].Config().Host)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, target.Host)
}

// leader is a Recorder.
type leader struct {
	*testing.T
	recorder *decision.Recorder
	ctx      context.Context
	running  sync.WaitGroup
	stop     func()
	logged   *observer.ObservedLogs
	// writes are the status codes of its writes.
	writes chan int
}

// roundTripper is a function between a client and the API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// lead starts a Recorder.
func (c *cluster) lead(identity string, decisionTimeout time.Duration, beforeWrite func(ctx context.Context)) *leader {
	c.Helper()
	l := c.prepare(identity, decisionTimeout, beforeWrite)
	l.running.Go(func() { l.recorder.Run(l.ctx) })
	return l
}

// prepare returns a Recorder with a synced cache. beforeWrite is called before each of its writes,
// and may be nil.
func (c *cluster) prepare(identity string, decisionTimeout time.Duration, beforeWrite func(ctx context.Context)) *leader {
	c.Helper()
	l := &leader{T: c.T, writes: make(chan int, 100)}
	config := server.Config()
	cache, err := controller.NewCache(config)
	require.NoError(c, err)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method != http.MethodPut {
				return next.RoundTrip(request)
			}
			if beforeWrite != nil {
				beforeWrite(request.Context())
			}
			response, err := next.RoundTrip(request)
			if err == nil {
				l.writes <- response.StatusCode
			}
			return response, err
		})
	})
	record, err := resources.NewRecord(config, "default")
	require.NoError(c, err)

	probes := server.Config()
	probes.Host, probes.Dial = "https://"+service, c.dial
	var core zapcore.Core
	core, l.logged = observer.New(zap.InfoLevel)
	l.recorder, err = decision.NewRecorder(decision.Options{
		REST: probes, Cache: cache, Record: record, Identity: identity, Interval: 50 * time.Millisecond, Timeout: decisionTimeout, Log: zap.New(core),
	})
	require.NoError(c, err)

	ctx, cancel := context.WithCancel(context.Background())
	l.ctx, l.stop = ctx, sync.OnceFunc(func() { cancel(); l.running.Wait() })
	c.Cleanup(l.stop)
	informers := append(kube.Informers{record}, cache.General...)
	l.running.Go(func() { informers.Run(ctx) })
	require.NoError(c, kube.WaitForSync(ctx, informers))
	return l
}

// awaitUndecided waits until the leader has logged why nothing is decided.
func (l *leader) awaitUndecided(parts ...string) {
	l.Helper()
	require.Eventually(l, func() bool {
		for _, entry := range l.logged.FilterLevelExact(zap.WarnLevel).All() {
			message, _ := entry.ContextMap()["message"].(string)
			hasAll := true
			for _, part := range parts {
				hasAll = hasAll && strings.Contains(message, part)
			}
			if hasAll {
				return true
			}
		}
		return false
	}, timeout, 10*time.Millisecond, "%v", l.logged.All())
}

func (c *cluster) record() map[string]string {
	c.Helper()
	configMap, err := c.clientset.CoreV1().ConfigMaps("default").Get(c.Context(), akriv0.ResourcesConfigMap, metav1.GetOptions{})
	require.NoError(c, err)
	return configMap.Data
}

// awaitRecord waits for the record.
func (c *cluster) awaitRecord(resources, reason string) map[string]string {
	c.Helper()
	var data map[string]string
	require.Eventually(c, func() bool { data = c.record(); return len(data) > 0 }, timeout, 10*time.Millisecond)
	require.Equal(c, resources, data[akriv0.ResourcesKey], data)
	require.Equal(c, reason, data[akriv0.ResourcesReasonKey], data)
	_, err := time.Parse(time.RFC3339, data[akriv0.ResourcesDecidedAtKey])
	require.NoError(c, err)
	return data
}

func (c *cluster) setRecord(data map[string]string) {
	c.Helper()
	kubetest.Edit(c, c.clientset.CoreV1().ConfigMaps("default"), akriv0.ResourcesConfigMap, func(configMap *corev1.ConfigMap) {
		configMap.Data = data
	})
}

// During an upgrade the API servers differ. Nothing is decided until they agree.
func TestServersDiffer(t *testing.T) {
	c := start(t, first, second)
	c.route(first, server)
	c.route(second, limited)
	l := c.lead("a", time.Hour, nil)
	l.awaitUndecided(first+" has all features", second+" does not have: consumable capacity")
	require.Empty(t, c.record())

	c.route(second, without)
	l.awaitUndecided(first+" has all features", second+" does not have: consumable capacity, extended resources, device taints")
	c.route(second)
	l.awaitUndecided(first+" has all features", second+" does not answer")
	require.Empty(t, c.record())

	c.route(second, server)
	data := c.awaitRecord(dra, akriv0.ResourcesFeaturesComplete)
	require.Equal(t, "a", data[akriv0.ResourcesDecidedByKey])
	l.stop()

	// A decision does not wait for an upgrade that takes a day.
	c.setRecord(nil)
	c.route(second)
	c.lead("b", time.Millisecond, nil)
	data = c.awaitRecord(devicePlugin, akriv0.ResourcesServersDiffer)
	require.Contains(t, data[akriv0.ResourcesMessageKey], second+" does not answer")
}

// An API server that hangs does not answer.
func TestServerHangs(t *testing.T) {
	c := start(t, first, second)
	c.route(first, server)
	c.route(second, limited)
	require.NoError(t, limited.Pause())
	t.Cleanup(func() { require.NoError(t, limited.Resume()) })
	c.lead("a", time.Millisecond, nil)
	data := c.awaitRecord(devicePlugin, akriv0.ResourcesServersDiffer)
	require.Contains(t, data[akriv0.ResourcesMessageKey], second+" does not answer")
}

// Without the API of Dynamic Resource Allocation, or all of its features, there are device plugins.
func TestFeaturesMissing(t *testing.T) {
	c := start(t, first)
	for _, test := range []struct {
		server  *kubetest.Server
		message string
	}{
		{without, "the API servers do not have: consumable capacity, extended resources, device taints"},
		{limited, "the API servers do not have: consumable capacity"},
	} {
		c.setRecord(nil)
		c.route(first, test.server)
		l := c.lead("a", time.Hour, nil)
		data := c.awaitRecord(devicePlugin, akriv0.ResourcesFeaturesMissing)
		require.Equal(t, test.message, data[akriv0.ResourcesMessageKey])
		l.stop()
	}
}

// A provider can have a proxy before the API servers. Then all connections through the Service must
// agree.
func TestServersThatCannotBeReached(t *testing.T) {
	c := start(t, first, second)
	c.route(service, server, server, server, limited)
	l := c.lead("a", time.Hour, nil)
	l.awaitUndecided("one behind the Service kubernetes has all features", "one behind the Service kubernetes does not have: consumable capacity")
	require.Empty(t, c.record())
	c.route(service, server)
	c.awaitRecord(dra, akriv0.ResourcesFeaturesComplete)
}

// The token of dra-controller is sent only to a server with a certificate of the API server: a user
// who changes the EndpointSlice does not get it.
func TestCertificateOfServer(t *testing.T) {
	received := make(chan string, 2)
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		received <- request.Header.Get("Authorization")
	}))
	t.Cleanup(other.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	config := &rest.Config{Host: other.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	request := func(address string) error {
		config, transport, err := decision.Connection(config, address)
		require.NoError(t, err)
		defer transport.CloseIdleConnections()
		client, err := rest.HTTPClientFor(config)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	require.ErrorContains(t, request(other.Listener.Addr().String()), "kubernetes.default.svc")
	require.Empty(t, received)
	require.NoError(t, request(""))
	require.Equal(t, "Bearer token", <-received)
}

// An installation that exists keeps what it has, whatever the API servers have.
func TestInstancesExist(t *testing.T) {
	c := start(t, first)
	c.route(first, server)
	instances, err := kube.Instances(server.Config())
	require.NoError(t, err)
	instance, err := instances.In("default").Create(t.Context(), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "camera-8120fe"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", CDIName: "akri.sh/camera=8120fe", Capacity: 1, Nodes: []string{"a"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, instances.In("default").Delete(context.Background(), instance.Name, metav1.DeleteOptions{}))
	})
	c.lead("a", time.Hour, nil)
	c.awaitRecord(devicePlugin, akriv0.ResourcesInstancesExist)
}

// The record of two leaders is that of one of them, also if one was written after the other has
// read that there is none, or if one ends before its write. Nothing replaces a record.
func TestOneRecord(t *testing.T) {
	c := start(t, first)
	c.route(first, server)

	t.Run("a leader ends between the probe and the record", func(t *testing.T) {
		reached := make(chan struct{})
		l := c.lead("a", time.Hour, func(ctx context.Context) { close(reached); <-ctx.Done() })
		<-reached
		l.stop()
		require.Empty(t, c.record())
		next := c.lead("b", time.Hour, nil)
		data := c.awaitRecord(dra, akriv0.ResourcesFeaturesComplete)
		require.Equal(t, "b", data[akriv0.ResourcesDecidedByKey])
		next.stop()
	})

	chosen := map[string]string{akriv0.ResourcesKey: devicePlugin, akriv0.ResourcesReasonKey: "Chosen"}
	t.Run("a record that was written after the read", func(t *testing.T) {
		c.setRecord(nil)
		l := c.lead("a", time.Hour, func(context.Context) { c.setRecord(chosen) })
		require.Equal(t, http.StatusConflict, <-l.writes)
		l.stop()
		require.Equal(t, chosen, c.record())
	})

	t.Run("a record that exists", func(t *testing.T) {
		l := c.prepare("a", time.Hour, nil)
		after, err := l.recorder.Reconcile(t.Context())
		require.NoError(t, err)
		require.Equal(t, kube.MaxWait, after)
		require.Empty(t, l.writes)
		require.Equal(t, chosen, c.record())
		l.stop()
	})

	t.Run("two leaders", func(t *testing.T) {
		for range 5 {
			c.setRecord(nil)
			var writing sync.WaitGroup
			writing.Add(2)
			meet := func() func(context.Context) {
				done := sync.OnceFunc(writing.Done)
				return func(context.Context) { done(); writing.Wait() }
			}
			a, b := c.lead("a", time.Hour, meet()), c.lead("b", time.Hour, meet())
			require.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict}, []int{<-a.writes, <-b.writes})
			c.awaitRecord(dra, akriv0.ResourcesFeaturesComplete)
			a.stop()
			b.stop()
			require.Empty(t, a.writes)
			require.Empty(t, b.writes)
		}
	})
}
