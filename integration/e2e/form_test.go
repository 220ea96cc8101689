package e2e_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// form is one of the two ways to run Akri on a node.
type form struct {
	// values that the chart needs for it.
	values []string
	// services that run on every node.
	services []string
	// swapped are those that are replaced under running brokers.
	swapped []string
	// host is the DaemonSet that serves the kubelet.
	host string
	// second is what comes of another of its pods on the same node.
	second scenario
}

func separate() form {
	return form{
		services: []string{"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "handler-udev", "handler-debug-echo"},
		swapped:  []string{"device-plugin-host", "discovery-operator"},
		host:     "akri-device-plugin-host",
		second:   scenario{"a second device-plugin-host comes beside the first, and takes over when that is killed", secondHost},
	}
}

func oneProcess() form {
	return form{
		values:   []string{"global.agent.enabled=true"},
		services: []string{"agent"},
		swapped:  []string{"agent"},
		host:     "akri-agent-daemonset",
		second:   scenario{"a second agent comes beside the first, and ends", secondAgent},
	}
}

// chosen is the form that all scenarios run on.
func chosen() form {
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		return oneProcess()
	}
	return separate()
}

// services are all that a user may see die.
func services() []string {
	return slices.Concat(chosen().services, []string{"instance-writer", "broker-controller"})
}

// TestAgent is what could be different about the other form: a plugged device becomes a broker, killing the agent loses nothing,
// uninstalling leaves nothing. With AKRI_E2E_AGENT all scenarios run on it.
func TestAgent(t *testing.T) {
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		t.Skip("TestMesh has it all")
	}
	require.NoError(t, akri.Install(t.Context(), oneProcess().values...))
	killEach(t, oneProcess().services)
	nothingIsLeft(t)
}

func changedForm(t *testing.T) {
	if os.Getenv("AKRI_E2E_AGENT") == "" {
		t.Skip("part of what AKRI_E2E_AGENT asks for")
	}
	apply(t, echoConfiguration("e2e-form", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-form", 2)
	before := observe(t, "e2e-form")
	for _, enabled := range []string{"false", "true"} {
		require.NoError(t, akri.Install(t.Context(), "global.agent.enabled="+enabled))
		require.Equal(t, before, observe(t, "e2e-form"))
		apply(t, echoConfiguration("e2e-agent-"+enabled, 1, "", "foo0"))
		awaitInstances(t, "default", "e2e-agent-"+enabled, "e2e-agent-"+enabled+"-8120fe")
		apply(t, ownPod("pod-"+enabled, "e2e-agent-"+enabled))
		awaitReadyPod(t, "default", "pod-"+enabled)
	}
	require.Equal(t, before, observe(t, "e2e-form"))
}
