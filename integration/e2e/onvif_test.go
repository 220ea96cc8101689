package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/devices/onvif"
)

// authenticatedCamera uses the unmodified sample, whose Secret has the camera's first password. The
// condition has the commands that grant the right to read the Secret.
func authenticatedCamera(t *testing.T) {
	cameras, err := onvif.StartOn(t.Context(), akri.Cluster, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cameras.Stop()) })
	camera := onvif.Make(1, netip.AddrPortFrom(cameras.Address, 80))
	camera.Auth, camera.Username, camera.Password = onvif.WSSecurity, "admin", "change-me"
	require.NoError(t, cameras.Plug(camera))
	sample, err := akri.Manifest("deploy", "samples", "onvif.yaml")
	require.NoError(t, err)
	apply(t, sample)
	grantRight(t, awaitCondition(t, "default", "onvif", akriv0.ConditionDetailsAccepted, metav1.ConditionFalse, akriv0.ReasonPropertyForbidden))

	name := instanceName("onvif", camera.UUID, "", true)
	found := awaitInstances(t, "default", "onvif", name)[0]
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
	require.NoError(t, akri.ApplyText(t.Context(), strings.Replace(sample, "change-me", camera.Password, 1)))
	await(t, "the firmware version that needs the new password", func(ctx context.Context) error {
		instance, err := akri.Instances.In("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && instance.Spec.BrokerProperties["ONVIF_DEVICE_FIRMWARE_VERSION"] != "2.0" {
			err = fmt.Errorf("the properties are %v", instance.Spec.BrokerProperties)
		}
		return err
	})
	require.Equal(t, instanceUIDs([]akriv0.Instance{found}), instanceUIDs(instances(t, "default", "onvif")))
	require.Equal(t, podUIDs(before), podUIDs(awaitBrokers(t, "default", "onvif", 2)))
	awaitCondition(t, "default", "onvif", akriv0.ConditionReady, metav1.ConditionTrue, akriv0.ReasonAsExpected)
}
