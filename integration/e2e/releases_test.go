package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
        - {name: broker, image: "ghcr.io/akri-mesh/sample-broker:dev", imagePullPolicy: IfNotPresent, command: [/no-such-program], resources: {limits: {"{{PLACEHOLDER}}": "1"}}}
`

// releaseOfConfigurations installs and upgrades a release of Configurations, and waits for it as
// GitOps tools do: by kstatus. It is ready although nothing works, because one site without its
// devices must not roll the release of all sites back. The conditions state what does not work.
func releaseOfConfigurations(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(siteConfigurations), 0o600))
	helm := func(ctx context.Context, arguments ...string) {
		_, err := akri.Helm(ctx, append(arguments, "--namespace", "default")...)
		require.NoError(t, err)
	}
	t.Cleanup(func() { helm(context.WithoutCancel(t.Context()), "uninstall", "e2e-site", "--ignore-not-found") })
	for _, action := range []string{"install", "upgrade"} {
		began := time.Now()
		helm(t.Context(), action, "e2e-site", akri.Path("charts", "akri"), "--values", values, "--wait", "--timeout", "1m", "--set", "configurations.e2e-site-crash.capacity=2")
		t.Logf("helm %s --wait returns after %s", action, time.Since(began).Round(100*time.Millisecond))
		for name, state := range map[string]string{"no-device": "Broken", "no-node": "Broken", "no-handler": "Broken", "no-secret": "Broken"} {
			awaitVerdict(t, "default", "e2e-site-"+name, akriv0.ConditionDevicesWorking, state)
		}
		awaitVerdict(t, "default", "e2e-site-crash", akriv0.ConditionBrokersWorking, "Broken")
	}
}
