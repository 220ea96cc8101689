package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
)

// httpHandler is a Pod with the sample handler and the HTTP endpoint that lists its devices. It has
// no liveness probe, because the kubelet would restart a container that is stopped.
func httpHandler(node cluster.Node) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: e2e-http, namespace: default}
data: {devices.json: '[{"name": "lamp", "url": "http://lamp.local"}]'}
---
apiVersion: v1
kind: Pod
metadata: {name: e2e-http, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: handler
    image: ghcr.io/akri-mesh/handler-http:dev
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: handlers, mountPath: /var/lib/akri}]
  - name: devices
    image: ghcr.io/akri-mesh/handler-http:dev
    imagePullPolicy: IfNotPresent
    command: [/bin/file-server, ":8000", /devices]
    volumeMounts: [{name: devices, mountPath: /devices}]
  volumes:
  - {name: handlers, hostPath: {path: /var/lib/akri, type: Directory}}
  - {name: devices, configMap: {name: e2e-http}}
`, node.Name())
}

func httpConfiguration(name string) string {
	return configurationOf(name, "http", "url: http://127.0.0.1:8000/devices.json")
}

// stoppedHandler stops the process of a handler. The handler is Offline after two probes without
// response, and Active when the process continues. Its devices and brokers stay.
func stoppedHandler(t *testing.T) {
	const name = "e2e-hang"
	node := akri.Cluster.Nodes()[0]
	apply(t, httpHandler(node))
	apply(t, httpConfiguration(name)+"  brokerSpec:"+broker)
	awaitBrokers(t, "default", name, 1)
	awaitHandlers(t, node, "http", active)
	before := observe(t, name)

	require.NoError(t, node.KillContainer(t.Context(), "default", "e2e-http", "handler", syscall.SIGSTOP))
	stopped := time.Now()
	awaitHandlers(t, node, "http", offline)
	t.Logf("a stopped handler is Offline after %s", time.Since(stopped).Round(time.Second))
	message := awaitCondition(t, "default", name, akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerOffline)
	require.Contains(t, message, node.Name())
	require.Equal(t, before, observe(t, name))

	require.NoError(t, node.KillContainer(t.Context(), "default", "e2e-http", "handler", syscall.SIGCONT))
	awaitHandlers(t, node, "http", active)
	awaitCondition(t, "default", name, akriv0.ConditionHandlerRegistered, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	require.Equal(t, before, observe(t, name))
}

// handlerStates follows a handler through all states with a short grace. An endpoint that cannot be
// reached leaves the table, also if no Configuration uses it.
func handlerStates(t *testing.T) {
	const name = "e2e-states"
	node := akri.Cluster.Nodes()[0]
	handler, configuration := httpHandler(node), httpConfiguration(name)
	device := instanceName(name, "lamp", "", true)
	require.NoError(t, register(t, node, &discoveryv0.RegisterDiscoveryHandlerRequest{
		Name: "e2eNowhere", Endpoint: "http://192.0.2.1:10000", EndpointType: discoveryv0.RegisterDiscoveryHandlerRequest_NETWORK,
	}))
	apply(t, handler)
	awaitHandlers(t, node, "http", waiting)
	apply(t, configuration)
	start := func() map[string]string {
		awaitHandlers(t, node, "http", active)
		awaitCondition(t, "default", name, akriv0.ConditionHandlerRegistered, metav1.ConditionTrue, akriv0.ReasonAsExpected)
		return instanceUIDs(awaitInstances(t, "default", name, device))
	}
	stop := func(before map[string]string) *registrarv1.Handler {
		began := time.Now()
		require.NoError(t, akri.DeleteText(t.Context(), handler))
		stopped := awaitHandlers(t, node, "http", offline)[0]
		require.WithinRange(t, stopped.GetOfflineSince().AsTime(), began, time.Now())
		awaitCondition(t, "default", name, akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerSocketMissing)
		require.Equal(t, before, instanceUIDs(instances(t, "default", name)))
		return stopped
	}

	stop(start())
	require.NoError(t, akri.DeleteText(t.Context(), configuration))
	awaitHandlers(t, node, "http", waiting)

	require.NoError(t, akri.ApplyText(t.Context(), handler+"---"+configuration))
	stopped := stop(start())
	awaitHandlers(t, node, "http")
	require.GreaterOrEqual(t, time.Since(stopped.GetOfflineSince().AsTime()), shortHandlerGrace)
	awaitCondition(t, "default", name, akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerNotRegistered)
	awaitInstances(t, "default", name)
	awaitHandlers(t, node, "e2eNowhere") // unused endpoints are probed every minute
}
