package e2e_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/catalog"
)

// form is a way to run Akri on a node: separate services or the agent, with device plugins, with
// Dynamic Resource Allocation, or with what the cluster decides.
type form struct {
	// values of the chart for all installations.
	values []string
	// handlers are the values that also enable the handlers that are off by default.
	handlers []string
	// services that run on every node.
	services []string
	// swapped are the services that a test replaces while brokers run.
	swapped []string
	// host is the DaemonSet that serves the kubelet.
	host string
	// grace has the environment variables of the times after which the registrar and
	// discovery-operator remove an offline handler and its devices.
	grace []string
	// second is the scenario of another pod of the DaemonSet on the same node.
	second scenario
	// own are the scenarios that need this form.
	own []scenario
	// dynamic is set if all nodes have Dynamic Resource Allocation.
	dynamic bool
	// decided is set if the services of both forms run on all nodes.
	decided bool
}

// resources returns the form, or with AKRI_E2E_RESOURCES=dra the same with Dynamic Resource
// Allocation instead of device plugins.
func (f form) resources() form {
	if os.Getenv("AKRI_E2E_RESOURCES") != "dra" {
		return f
	}
	f.dynamic = true
	f.values = slices.Concat(f.values, dynamic().values) // the last one of a value counts
	withoutPlugins := func(services []string) []string {
		kept := slices.DeleteFunc(slices.Clone(services), func(service string) bool {
			return service == "device-plugin-host" || service == "config-plugin-allocator"
		})
		if len(kept) < len(services) {
			kept = append(kept, "dra-kubelet-plugin")
		}
		return kept
	}
	f.services, f.swapped = withoutPlugins(f.services), withoutPlugins(f.swapped)
	return f
}

// onlyDevicePlugins skips a scenario with Dynamic Resource Allocation for the reason.
func onlyDevicePlugins(t *testing.T, reason string) {
	t.Helper()
	if selected.dynamic {
		t.Skip("concerns only device plugins: " + reason)
	}
}

// runsLong reports whether also the scenarios run that take minutes, with AKRI_E2E_LONG=1.
func runsLong() bool { return os.Getenv("AKRI_E2E_LONG") != "" }

// onlyLong skips a scenario without AKRI_E2E_LONG for the reason.
func onlyLong(t *testing.T, reason string) {
	t.Helper()
	if !runsLong() {
		t.Skip("AKRI_E2E_LONG is not set: " + reason)
	}
}

// Values of forms.
const (
	withDevicePlugins = "global.resources=devicePlugin"
	withAgent         = "global.agent.enabled=true"
)

func separate() form {
	return form{
		values:   []string{withDevicePlugins},
		handlers: append(allHandlers(), "opcua.discovery.useNetworkConnection=true"),
		services: append([]string{"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator"}, defaultHandlers()...),
		swapped:  []string{"device-plugin-host", "discovery-operator"},
		host:     "akri-device-plugin-host",
		grace:    []string{"registrar.env.AKRI_KEEP_OFFLINE", "discovery-operator.env.AKRI_HANDLER_GRACE"},
		second:   secondHost,
	}
}

func agent() form {
	return form{
		values: []string{withAgent, withDevicePlugins},
		handlers: append(allHandlers(),
			"global.agent.handlers={udev,debug-echo,opcua,onvif}", "agent.hostNetwork=true", "global.networkPolicy.enabled=false"),
		services: []string{"agent"},
		swapped:  []string{"agent"},
		host:     "akri-agent-daemonset",
		grace:    []string{"agent.env.AKRI_REGISTRAR_KEEP_OFFLINE", "agent.env.AKRI_DISCOVERY_OPERATOR_HANDLER_GRACE"},
		second:   secondAgent,
		own:      []scenario{changedForm, agentWithClaims},
	}
}

// allHandlers returns the values that enable all handlers of the project.
func allHandlers() []string {
	var values []string
	for _, handler := range catalog.Handlers {
		values = append(values, handler.Value+"=true")
	}
	return values
}

// defaultHandlers returns the components of the handlers that are enabled by default.
func defaultHandlers() []string {
	var components []string
	for _, handler := range catalog.Handlers {
		if handler.Default {
			components = append(components, handler.Component)
		}
	}
	return components
}

// emulatedDevices allows the device nodes that emulate cameras and serial adapters.
var emulatedDevices = []string{"global.allowDeviceClasses={loop,tty}"}

// allowLists restricts the handler e2eListed.
var allowLists = []string{
	"global.allowFromHandlers.e2eListed.deviceClasses={ttyUSB}", "global.allowFromHandlers.e2eListed.propertyPrefixes={LISTED_}",
}

// selected is the form of the scenarios of a test.
var selected form

func selectForm(f form) {
	selected, akri.Values = f, slices.Concat(f.values, rotation, emulatedDevices, allowLists)
}

// process returns the service whose process on a node runs the component.
func (f form) process(component string) string {
	if f.dynamic && component == "device-plugin-host" {
		component = "dra-kubelet-plugin"
	}
	if slices.Contains(f.services, component) {
		return component
	}
	return "agent"
}

// handlerGrace returns the values that set the time after which an offline handler is removed.
func (f form) handlerGrace(grace time.Duration) []string {
	var values []string
	for _, variable := range f.grace {
		values = append(values, variable+"="+grace.String())
	}
	return values
}

// services returns the services of the form and the cluster-wide ones.
func services() []string {
	all := slices.Concat(selected.services, []string{"instance-writer", "broker-controller"})
	if selected.dynamic {
		all = append(all, "dra-controller")
	}
	return all
}

// changedForm replaces the agent by separate services and back while brokers run.
func changedForm(t *testing.T) {
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
