// Package console_test opens the pages of the console in Chromium. A real API server has 1,000
// devices.
package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/console"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/trial"

	"akri.sh/integration/browser"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	devices = 1000
	nodes   = 3
)

// fill creates the objects of an installation, as its services would.
func fill(t *testing.T, client *cluster.Client) {
	t.Helper()
	ctx := t.Context()
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
		node, err := client.Kubernetes.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		require.NoError(t, err)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		node.Status.Capacity = corev1.ResourceList{}
		for device := range devices {
			node.Status.Capacity[corev1.ResourceName(akriv0.ResourceName(camera(device).Name))] = resource.MustParse("1")
		}
		node.Status.Allocatable = node.Status.Capacity
		_, err = client.Kubernetes.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	labels := map[string]string{"app.kubernetes.io/part-of": "akri", "app.kubernetes.io/component": "discovery-operator"}
	container := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "ghcr.io/akri-mesh/discovery-operator:v0.1.0"}}}
	daemonSet, err := client.Kubernetes.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-discovery-operator", Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: container},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	daemonSet.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: nodes, NumberReady: nodes}
	_, err = client.Kubernetes.AppsV1().DaemonSets("default").UpdateStatus(ctx, daemonSet, metav1.UpdateOptions{})
	require.NoError(t, err)
	for i := range nodes {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "akri-discovery-operator-" + nodeName(i), Labels: labels}, Spec: container}
		pod.Spec.NodeName = nodeName(i)
		pod, err := client.Kubernetes.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(t, err)
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		_, err = client.Kubernetes.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	configure(t, client, "cameras", "onvif", metav1.Condition{Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected, Message: "1000 devices on 3 nodes"})
	configure(t, client, "disks", "udve", metav1.Condition{
		Type: akriv0.ConditionHandlerRegistered, Status: metav1.ConditionFalse, Reason: akriv0.ReasonHandlerNotRegistered,
		Message: `node-a, node-b: no Discovery Handler named "udve" is registered; registered: onvif, udev`,
	})
	configure(t, client, "zram", "udev", metav1.Condition{
		Type: akriv0.ConditionDevicesFound, Status: metav1.ConditionFalse, Reason: akriv0.ReasonNothingMatched, Message: "no device matches on node-a",
	})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for i := range devices {
		group.Go(func() error {
			_, err := client.Instances.In("default").Create(ctx, camera(i), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
}

func nodeName(i int) string { return fmt.Sprintf("node-%c", 'a'+i%nodes) }

func configure(t *testing.T, client *cluster.Client, name, handler string, condition metav1.Condition) {
	t.Helper()
	configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	configuration.Spec.DiscoveryHandler.Name = handler
	configuration, err := client.Configurations.In("default").Create(t.Context(), configuration, metav1.CreateOptions{})
	require.NoError(t, err)
	condition.LastTransitionTime = metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ready := condition
	ready.Type = akriv0.ConditionReady
	configuration.Status.Conditions = []metav1.Condition{ready}
	if condition.Type != "" {
		configuration.Status.Conditions = append(configuration.Status.Conditions, condition)
	}
	for i := range nodes {
		configuration.Status.Nodes = append(configuration.Status.Nodes, akriv0.NodeStatus{
			Name: nodeName(i), Handlers: []akriv0.HandlerStatus{{Name: "onvif", Endpoint: "/var/lib/akri/onvif.sock", Status: akriv0.HandlerActive}},
		})
	}
	_, err = client.Configurations.In("default").UpdateStatus(t.Context(), configuration, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func camera(i int) *akriv0.Instance {
	name := fmt.Sprintf("cameras-%06x", i)
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{akriv0.DeviceIDAnnotation: fmt.Sprintf("urn:uuid:camera-%04d", i)}},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: "cameras", CDIName: "akri.sh/cameras=" + fmt.Sprintf("%06x", i), Capacity: 2, Shared: true, Nodes: []string{nodeName(i), nodeName(i + 1)},
			DeviceUsage:      map[string]string{akriv0.SlotName(name, 0): nodeName(i), akriv0.SlotName(name, 1): ""},
			BrokerProperties: map[string]string{"ONVIF_DEVICE_IP_ADDRESS": "192.0.2.1", "ONVIF_PASSWORD": "hunter22"},
		},
		Status: akriv0.InstanceStatus{SlotsUsed: 1, SlotsFree: 1},
	}
}

// serve runs the console and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	cache, err := cache.New(t.Context(), server.Config(), "default")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); cache.Run(ctx) }()
	t.Cleanup(func() { stop(); <-stopped })
	require.NoError(t, cache.Synced(t.Context()))
	pages := console.Restricted(func(*http.Request) (console.Viewer, http.Handler) {
		return console.Viewer{Source: cache, Closest: func(context.Context, *explain.Snapshot, *akriv0.Configuration) []trial.Group { return closest }}, nil
	})
	web := httptest.NewServer(console.Local("secret", pages))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	return web.URL
}

// closest are the devices that come closest to the Configuration zram.
var closest = []trial.Group{{
	Kind: "block", Mismatches: []trial.Mismatch{{Condition: `KERNEL=="zrm*"`, Wanted: "zrm*", Found: []string{"zram0", "zram1"}}},
	Distance: 1, CorrectedDetails: "udevRules:\n- KERNEL==\"zram*\"\n",
	Devices: []trial.Devices{{Nodes: []string{"node-a"}, First: "/dev/zram0", Series: []trial.Series{{First: "/dev/zram0", Last: "/dev/zram1", Count: 2}}, Count: 2}},
}}

// TestPages opens each page, follows changes, and stops the API server.
func TestPages(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	fill(t, client)
	origin := serve(t)
	b := browser.Start(t, origin)
	b.Do(t, "open", chromedp.Navigate(origin+"/?token=secret"))
	for _, page := range []struct{ path, shows, screenshot string }{
		{"/", "Devices default/disks NoSuchHandler", "overview"},
		{"/problems?state=Broken", "NoSuchHandler", "problems"},
		{"/devices?q=camera-000", "10 of 1000 devices", "devices"},
		{"/devices/default/cameras-00000a", "ONVIF_PASSWORD", "device"},
		{"/configurations", "default/cameras", "configurations"},
		{"/configurations/default/disks", "NoSuchHandler", "configuration"},
		{"/configurations/default/zram", "To match /dev/zram0 (block), use these discoveryDetails:", "closest"},
		{"/nodes", "node-c", "nodes"},
		{"/nodes/node-a", "akri-discovery-operator-node-a", "node"},
		{"/pods", "akri-discovery-operator-node-a", "pods"},
		{"/pods/default/akri-discovery-operator-node-a", "all are ready", "pod"},
		{"/handlers", "Active", "handlers"},
		{"/services", "discovery-operator", "services"},
		{"/events", "No Events", "events"},
	} {
		b.Do(t, page.path, chromedp.Navigate(origin+page.path))
		b.Await(t, fmt.Sprintf("document.body.innerText.includes(%q)", page.shows))
		b.Await(t, "source.readyState === EventSource.OPEN && document.getElementById('disconnected').hidden")
		for _, window := range []struct {
			width        int64
			scheme, name string
		}{{390, "dark", "-phone-dark"}, {1280, "light", ""}} {
			b.Show(t, window.width, 900, window.scheme)
			b.CheckAccessibility(t)
			b.Await(t, "document.documentElement.scrollWidth <= window.innerWidth")
			b.Screenshot(t, page.screenshot+window.name)
		}
	}
	t.Run("overview", func(t *testing.T) { beginsWithProblems(t, b, origin) })
	t.Run("live", func(t *testing.T) { follow(t, b, client, origin) })
	t.Run("API server away", func(t *testing.T) { stopAPIServer(t, b, client, origin) })
}

// beginsWithProblems opens the overview on a phone. Its first line is what does not work, and ages
// are those of the clock of the server, also after an update.
func beginsWithProblems(t *testing.T, b *browser.Browser, origin string) {
	b.Show(t, 390, 844, "light")
	b.Do(t, "open", chromedp.Navigate(origin+"/"))
	b.Await(t, "document.querySelector('.problems .broken').getBoundingClientRect().bottom < window.innerHeight / 2")
	b.Await(t, "source.readyState === EventSource.OPEN && / ago$/.test(document.querySelector('.problems time').textContent)")
	b.Await(t, `(() => {
		const time = document.querySelector('.problems time');
		time.dateTime = new Date(Date.now() + ahead - 90000).toISOString();
		showAges(document);
		return time.textContent === '1 min ago';
	})()`)
}

// follow opens all devices. Changes appear in the page that is open.
func follow(t *testing.T, b *browser.Browser, client *cluster.Client, origin string) {
	instances := client.Instances.In("default")
	b.Do(t, "open", chromedp.Navigate(origin+"/devices"))
	b.Await(t, "document.querySelectorAll('tbody tr').length === 1000 && source.readyState === EventSource.OPEN")
	b.Do(t, "mark", chromedp.Evaluate[chromedp.Void]("window.notReloaded = true; document.querySelector('#device-default-cameras-00000b a').focus(); 0"))
	require.NoError(t, instances.Delete(t.Context(), "cameras-00000a", metav1.DeleteOptions{}))
	b.Await(t, "!document.getElementById('device-default-cameras-00000a') && document.body.innerText.includes('999 devices')")
	_, err := instances.Create(t.Context(), camera(10), metav1.CreateOptions{})
	require.NoError(t, err)
	b.Await(t, "document.getElementById('device-default-cameras-00000a') && document.body.innerText.includes('1000 devices')")
	b.Await(t, "document.querySelectorAll('tbody tr')[10].id === 'device-default-cameras-00000a'")
	b.Await(t, "window.notReloaded && document.activeElement.closest('tr').id === 'device-default-cameras-00000b'")

	b.Do(t, "search", chromedp.SendKeys(chromedp.CSS("input[name=q]"), "camera-0012 node-b"))
	b.Await(t, "document.querySelectorAll('tbody tr').length === 1 && location.search === '?q=camera-0012+node-b' && window.notReloaded")
	b.Do(t, "clear the search", chromedp.Evaluate[chromedp.Void](
		"document.querySelector('input[name=q]').value = ''; document.querySelector('form').dispatchEvent(new Event('input')); 0"))
	b.Await(t, "document.querySelectorAll('tbody tr').length === 1000")
}

// stopAPIServer checks that the page shows that it is not up to date, and recovers.
func stopAPIServer(t *testing.T, b *browser.Browser, client *cluster.Client, origin string) {
	b.Do(t, "open", chromedp.Navigate(origin+"/devices?q=camera-001"))
	b.Await(t, "document.querySelectorAll('tbody tr').length === 10 && source.readyState === EventSource.OPEN")
	require.NoError(t, server.Pause())
	defer func() { require.NoError(t, server.Resume()) }()
	b.Await(t, "document.querySelector('#live .banner')?.innerText.includes('The API server does not answer')")
	b.CheckAccessibility(t)
	b.Screenshot(t, "away")
	require.NoError(t, server.Resume())
	b.Await(t, "!document.querySelector('#live .banner') && document.querySelectorAll('tbody tr').length === 10")
	require.NoError(t, client.Instances.In("default").Delete(t.Context(), "cameras-00000a", metav1.DeleteOptions{}))
	b.Await(t, "!document.getElementById('device-default-cameras-00000a')")
}
