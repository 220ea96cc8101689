package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// siteConfigurations are values of a release that several sites share. None of its Configurations
// works at this one.
const siteConfigurations = `
services: {enabled: false}
configurations:
  e2e-site-no-device:
    discoveryHandler: {name: udev, discoveryDetails: "udevRules: ['KERNEL==\"no-such-device\"']"}
    expectedDevices: 2
  e2e-site-no-node:
    discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [foo0]"}
    nodes: {names: [no-such-node]}
  e2e-site-no-handler:
    discoveryHandler: {name: noSuchHandler}
  e2e-site-ended-handler:
    discoveryHandler: {name: e2eEnded}
  e2e-site-no-secret:
    discoveryHandler:
      name: debugEcho
      discoveryDetails: "descriptions: [foo0]"
      discoveryProperties: [{name: password, valueFrom: {secretKeyRef: {name: no-such-secret, key: password}}}]
  e2e-site-crash:
    discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [foo0]"}
    brokerSpec:
      brokerPodSpec:
        containers:
        - {name: broker, image: "ghcr.io/akri-mesh/sample-broker:dev", imagePullPolicy: IfNotPresent, args: [--once], resources: {limits: {"{{PLACEHOLDER}}": "1"}}}
`

// siteTimeout is how long helm waits for a release of Configurations. It returns in a second or
// two, because it waits for nothing that depends on devices. The rest is for a slow machine.
const siteTimeout = "20s"

// releaseOfConfigurations installs and upgrades a release of Configurations with each version of
// helm, and waits for it: Helm 4 and GitOps tools do so by kstatus. It is ready although nothing
// works, because one site without its devices must not roll the release of all sites back. The
// conditions state what does not work.
func releaseOfConfigurations(t *testing.T) {
	ended := handle(t, akri.Cluster.Nodes()[0], "e2eEnded")
	ended.stop()
	release(t, "helm 4", akri.Helm, func() {
		for _, name := range []string{"no-device", "no-node", "no-handler", "ended-handler", "no-secret"} {
			awaitVerdict(t, "default", "e2e-site-"+name, akriv0.ConditionDevicesWorking, "Broken")
		}
		awaitVerdict(t, "default", "e2e-site-crash", akriv0.ConditionBrokersWorking, "Broken")
	})
	// Helm 3 reads no conditions, and they do not depend on the version of helm.
	release(t, "helm 3", akri.Helm3, func() {})
}

// releaseWhileOff does the same while every node with node services is off. The cluster
// services run on another node.
func releaseWhileOff(t *testing.T, nodes ...cluster.Node) {
	t.Helper()
	for _, node := range nodes {
		require.NoError(t, node.Stop(t.Context()))
		markNotReady(t, node.Name())
	}
	release(t, "helm 4", akri.Helm, func() {})
	release(t, "helm 3", akri.Helm3, func() {})
	for _, node := range nodes {
		require.NoError(t, node.Start(t.Context()))
	}
}

// helmCommand runs a version of helm.
type helmCommand func(ctx context.Context, arguments ...string) (string, error)

// release installs, upgrades and uninstalls siteConfigurations. It calls check after the first two.
func release(t *testing.T, version string, helm helmCommand, check func()) {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(siteConfigurations), 0o600))
	run := func(action string, arguments ...string) {
		began := time.Now()
		_, err := helm(t.Context(), append([]string{action, "e2e-site", "--namespace", "default"}, arguments...)...)
		require.NoError(t, err, version)
		t.Logf("%s: %s returns after %s", version, action, time.Since(began).Round(100*time.Millisecond))
	}
	for _, action := range []string{"install", "upgrade"} {
		run(action, akri.Path("charts", "akri"), "--values", values, "--wait", "--timeout", siteTimeout, "--set", "configurations.e2e-site-crash.capacity=2")
		check()
	}
	run("uninstall")
}

// customHandler adds a handler of others, its Configuration and its broker to the release, with
// upstream Akri's values: the sample handler discovers the devices of an endpoint, and brokers use
// them. The release also has a Configuration that does not work, and does not wait for it. Then the
// handler serves on the network, and finds the devices of another Configuration. The next
// installation removes all of them.
func customHandler(t *testing.T) {
	endpoint, err := akri.Manifest("deploy", "samples", "handler-http", "endpoint.yaml")
	require.NoError(t, err)
	apply(t, endpoint)
	awaitReadyPod(t, "default", "devices")
	const name = "e2e-custom"
	const configuration, pod = "custom.configuration.", "custom.configuration.brokerPod."
	values := []string{
		"configurations.e2e-unhandled.discoveryHandler.name=noSuchHandler",
		"custom.discovery.enabled=true", "custom.discovery.name=" + name,
		"custom.discovery.image.repository=ghcr.io/akri-mesh/handler-http", "custom.discovery.image.tag=" + mesh.DevTag,
		"custom.discovery.resources.memoryLimit=64Mi", "custom.discovery.resources.cpuLimit=1",
		configuration + "enabled=true", configuration + "name=" + name, configuration + "capacity=2", configuration + "discoveryHandlerName=http",
		configuration + "discoveryDetails=url: http://devices.default.svc.cluster.local/devices.json",
		configuration + "configurationService.targetPort=8083", configuration + "configurationService.port=80",
		pod + "image.repository=ghcr.io/akri-mesh/sample-broker", pod + "image.tag=" + mesh.DevTag, pod + "resources.cpuLimit=1",
		pod + "readinessProbe.httpGet.path=/healthz", pod + "readinessProbe.httpGet.port=8083", pod + "readinessProbe.periodSeconds=1",
	}
	require.NoError(t, akri.Install(t.Context(), values...))
	awaitVerdict(t, mesh.Namespace, "e2e-unhandled", akriv0.ConditionDevicesWorking, "Broken")
	devices := map[string]string{}
	for _, device := range []string{"lamp", "fan"} {
		devices[instanceName(name, device, "", true)] = device
	}
	awaitInstances(t, mesh.Namespace, name, slices.Collect(maps.Keys(devices))...)
	brokers := awaitBrokers(t, mesh.Namespace, name, len(devices)*len(akri.Cluster.Nodes()))
	for _, broker := range brokers {
		require.Equal(t, devices[broker.Labels["akri.sh/instance"]], query(t, &broker).Env["HTTP_DEVICE_NAME"])
	}
	await(t, "the Service of the Configuration", func(ctx context.Context) error {
		_, err := queryService(ctx, &brokers[0], name+"-svc")
		return err
	})

	// The socket of the former Pods is offline. It answers no other Configuration.
	require.NoError(t, akri.Install(t.Context(), append(values, "custom.discovery.useNetworkConnection=true")...))
	for _, node := range akri.Cluster.Nodes() {
		found := awaitHandlers(t, node, "http", active, offline)
		require.Regexp(t, `^[0-9.]+:10000$`, found[0].GetEndpoint())
	}
	const other = "e2e-custom-network"
	apply(t, fmt.Sprintf(`
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: %s, namespace: default}
spec:
  discoveryHandler: {name: http, discoveryDetails: "url: http://devices.default.svc.cluster.local/devices.json"}
`, other))
	awaitInstances(t, "default", other, instanceName(other, "lamp", "", true), instanceName(other, "fan", "", true))
	require.Equal(t, podUIDs(brokers), podUIDs(awaitBrokers(t, mesh.Namespace, name, len(brokers))), "brokers keep their devices")
}
