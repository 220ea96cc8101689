package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/devices/onvif"
	"akri.sh/integration/mesh"
)

// cameras has the tests with cameras one after the other, because all handlers find all cameras.
func cameras(t *testing.T) {
	inOrder(t, authenticatedCamera, servicesOfCameras, videoOfCameras)
}

// authenticatedCamera runs the tutorial with the unmodified sample, whose Secret has the camera's
// first password. The condition has the commands that grant the right to read the Secret.
func authenticatedCamera(t *testing.T) {
	cameras, err := onvif.StartOn(t.Context(), akri.Cluster, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cameras.Stop()) })
	camera := onvif.Make(1, netip.AddrPortFrom(cameras.Address, 80))
	camera.Auth, camera.Username, camera.Password = onvif.WSSecurity, "admin", "change-me"
	require.NoError(t, cameras.Plug(camera))
	manifest := sample(t, "onvif.yaml")
	run := tutorialOf(t, "tutorials/onvif.md", "onvif.yaml", manifest)
	t.Cleanup(func() {
		shell(t, "kubectl delete --ignore-not-found rolebinding,role akri-secret-onvif-credentials")
	})
	output := run("Set the password")
	commands := section(t, "tutorials/onvif.md", "## Set the password")
	grant := strings.TrimSpace(commands[strings.Index(commands, "kubectl create role"):])
	require.Contains(t, strings.ReplaceAll(output, " && ", "\n"), grant, "the message has other commands than the page")
	require.Contains(t, run("Find the cameras"), camera.MAC) // only with the password

	name := instanceName("onvif", camera.UUID, "", true)
	found := awaitInstances(t, "default", "onvif", name)[0]
	await(t, "the camera that try finds", func(ctx context.Context) error {
		_, err := tryOn(ctx, "onvif")(camera.URL() + "-" + camera.UUID)
		return err
	})
	require.Equal(t, map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": camera.URL(), "ONVIF_DEVICE_UUID": camera.UUID,
		"ONVIF_DEVICE_IP_ADDRESS": cameras.Address.String(), "ONVIF_DEVICE_MAC_ADDRESS": camera.MAC, // only with the password
		"ONVIF_DEVICE_MANUFACTURER": "Akri", "ONVIF_DEVICE_MODEL": "Simulated", "ONVIF_DEVICE_FIRMWARE_VERSION": "1.0",
		"ONVIF_DEVICE_SERIAL_NUMBER": camera.MAC, "ONVIF_DEVICE_HARDWARE_ID": "sim",
	}, found.Spec.BrokerProperties)
	before := awaitBrokers(t, "default", "onvif", 2)
	env := query(t, &before[0]).Env
	for key, value := range found.Spec.BrokerProperties {
		require.Equal(t, value, env[key+"_"+strings.ToUpper(akriv0.InstanceDigest(name))])
	}

	// The camera gets another password and another firmware version, which it reports to
	// authenticated clients.
	cameras.Unplug(camera)
	camera.Password, camera.Firmware = "rotated", "2.0"
	require.NoError(t, cameras.Plug(camera))
	require.NoError(t, akri.ApplyText(t.Context(), strings.Replace(manifest, "change-me", camera.Password, 1)))
	awaitInstance(t, name, "to have the firmware version, which needs the new password", func(instance *akriv0.Instance) error {
		if instance.Spec.BrokerProperties["ONVIF_DEVICE_FIRMWARE_VERSION"] != "2.0" {
			return fmt.Errorf("the properties are %v", instance.Spec.BrokerProperties)
		}
		return nil
	})
	require.Equal(t, instanceUIDs([]akriv0.Instance{found}), instanceUIDs(instances(t, "default", "onvif")))
	require.Equal(t, podUIDs(before), podUIDs(awaitBrokers(t, "default", "onvif", 2)))
	awaitVerdict(t, "default", "onvif", akriv0.ConditionDevicesWorking, "Works")
	run("Remove it")
}

// cameraConfiguration has both Services and capacity 5. The ConfigMap has a part of the
// credentials.
const cameraConfiguration = `
apiVersion: v1
kind: ConfigMap
metadata: {name: e2e-cameras, namespace: default}
data: {username: %s}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-cameras, namespace: default}
spec:
  discoveryHandler:
    name: onvif
    discoveryDetails: "identity: uuid"
    discoveryProperties:
    - {name: username_default, valueFrom: {configMapKeyRef: {name: e2e-cameras, key: username}}}
    - {name: password_default, value: secret}
  capacity: 5
  brokerSpec:` + broker + servicesSpec

// servicesOfCameras has a broker on each node for each camera. The Service of an Instance has the
// brokers of one camera, that of the Configuration has all.
func servicesOfCameras(t *testing.T) {
	fleet, err := onvif.StartOn(t.Context(), akri.Cluster, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fleet.Stop()) })
	macs := map[string]string{}
	for number, port := range map[int]uint16{2: 80, 3: 81} {
		camera := onvif.Make(number, netip.AddrPortFrom(fleet.Address, port))
		camera.Auth, camera.Username, camera.Password = onvif.WSSecurity, "viewer", "secret"
		require.NoError(t, fleet.Plug(camera))
		macs[instanceName("e2e-cameras", camera.UUID, "", true)] = camera.MAC
	}
	apply(t, fmt.Sprintf(cameraConfiguration, "wrong"))
	grantRight(t, awaitCondition(t, "default", "e2e-cameras", akriv0.ConditionDetailsAccepted, metav1.ConditionFalse, akriv0.ReasonPropertyForbidden))
	names := slices.Sorted(maps.Keys(macs))
	for _, instance := range awaitInstances(t, "default", "e2e-cameras", names...) {
		require.Empty(t, instance.Spec.BrokerProperties["ONVIF_DEVICE_MAC_ADDRESS"], "the username is wrong")
		require.EqualValues(t, 5, instance.Spec.Capacity)
		require.Len(t, instance.Spec.DeviceUsage, 5)
	}
	before := awaitBrokers(t, "default", "e2e-cameras", len(names)*len(akri.Cluster.Nodes()))
	byService := map[string][]string{}
	for _, pod := range before {
		for _, owner := range []string{"e2e-cameras", pod.Labels[mesh.InstanceLabel]} {
			byService[owner+"-svc"] = append(byService[owner+"-svc"], pod.Name)
		}
	}
	require.Len(t, byService, 1+len(names))
	for service, pods := range byService {
		awaitResponses(t, &before[0], service, pods)
	}

	require.NoError(t, akri.ApplyText(t.Context(), fmt.Sprintf(cameraConfiguration, "viewer")))
	awaitInstancesOf(t, "default", "e2e-cameras", "the properties that need the new username", func(found []akriv0.Instance) error {
		for _, instance := range found {
			if got := instance.Spec.BrokerProperties["ONVIF_DEVICE_MAC_ADDRESS"]; got != macs[instance.Name] {
				return fmt.Errorf("the MAC address of %s is %q", instance.Name, got)
			}
		}
		return nil
	})
	require.Equal(t, podUIDs(before), podUIDs(awaitBrokers(t, "default", "e2e-cameras", len(before))))
}

// awaitResponses waits until all Pods, and no others, have responded through the Service.
func awaitResponses(t *testing.T, client *corev1.Pod, service string, pods []string) {
	t.Helper()
	seen := map[string]bool{}
	await(t, fmt.Sprintf("responses of %v through Service %s", pods, service), func(ctx context.Context) error {
		pod, err := queryService(ctx, client, service)
		if err != nil {
			return err
		}
		require.Contains(t, pods, pod)
		if seen[pod] = true; len(seen) < len(pods) {
			return fmt.Errorf("responses came from %v", seen)
		}
		return nil
	})
}
