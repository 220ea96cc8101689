package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	configurationv1 "akri.sh/proto/akri/configuration/v1"

	"akri.sh/integration/mesh"
)

// noNodeRights checks that the service accounts of the node plane have the rights that every
// service account has, and that their Pods have no token of the API server.
func noNodeRights(t *testing.T) {
	rights := func(account string) string {
		user := fmt.Sprintf("--as=system:serviceaccount:%s:%s", mesh.Namespace, account)
		listed, err := akri.Kubectl(t.Context(), "", "auth", "can-i", "--list", "--namespace", mesh.Namespace, user)
		require.NoError(t, err)
		return listed
	}
	daemonSets, err := akri.Kubernetes.AppsV1().DaemonSets(mesh.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(daemonSets.Items), len(selected.services))
	none := rights("default")
	for _, daemonSet := range daemonSets.Items {
		pod := daemonSet.Spec.Template.Spec
		require.Equal(t, none, rights(pod.ServiceAccountName), pod.ServiceAccountName)
		require.False(t, *pod.AutomountServiceAccountToken, daemonSet.Name)
	}
	require.NotEqual(t, none, rights("akri-instance-writer"))
}

const cameraWithSecret = `
apiVersion: v1
kind: Secret
metadata: {name: e2e-credentials, namespace: default}
stringData: {password: first}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-secret, namespace: default}
spec:
  discoveryHandler:
    name: e2e-secret
    discoveryDetails: details
    discoveryProperties:
      - {name: password, valueFrom: {secretKeyRef: {name: e2e-credentials, key: password}}}
`

// propertiesOfOwnHandlers checks that a node gets the values of discoveryProperties only for its
// own handlers.
func propertiesOfOwnHandlers(t *testing.T) {
	apply(t, cameraWithSecret)
	other := watchConfigurations(t, "debugEcho", "onvif", "udev")
	require.Nil(t, other.next("e2e-secret").GetRequest())

	own := watchConfigurations(t, "e2e-secret")
	request := own.next("e2e-secret").GetRequest()
	require.Empty(t, request.GetProperties())
	require.Equal(t, akriv0.ReasonPropertyForbidden, request.GetProblems()[0].GetReason())
	grantRight(t, request.GetProblems()[0].GetMessage())
	require.Equal(t, "first", own.password())

	_, err := akri.Kubectl(t.Context(), "", "patch", "secret", "e2e-credentials", "--namespace=default", `--patch={"stringData":{"password":"second"}}`)
	require.NoError(t, err)
	require.Equal(t, "second", own.password())

	// The other node does not even learn that a value has changed.
	_, err = akri.Kubectl(t.Context(), "", "delete", "configuration", "e2e-secret", "--namespace=default")
	require.NoError(t, err)
	require.Nil(t, other.next("e2e-secret"))
	for _, configuration := range other.received {
		if configuration.GetRequest() != nil {
			require.Contains(t, []string{"debugEcho", "onvif", "udev"}, configuration.GetHandler())
		}
	}
}

// grantRight runs the commands in the message of PropertyForbidden.
func grantRight(t *testing.T, message string) {
	t.Helper()
	_, commands, found := strings.Cut(message, "grant the right with: ")
	require.True(t, found, message)
	for command := range strings.SplitSeq(commands, " && ") {
		arguments := strings.Fields(command)
		require.Equal(t, []string{"kubectl", "create"}, arguments[:2], message)
		_, err := akri.Kubectl(t.Context(), "", arguments[1:]...)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := akri.Kubectl(context.WithoutCancel(t.Context()), "", append([]string{"delete"}, arguments[2:6]...)...)
			require.NoError(t, err)
		})
	}
}

// configurationWatch is a WatchConfigurations stream.
type configurationWatch struct {
	*testing.T
	grpc.BidiStreamingClient[configurationv1.WatchConfigurationsRequest, configurationv1.WatchConfigurationsResponse]
	received []*configurationv1.Configuration
}

// watchConfigurations opens a stream as a node with the handlers does.
func watchConfigurations(t *testing.T, handlers ...string) *configurationWatch {
	t.Helper()
	node := akri.Cluster.Nodes()[0].Name()
	caller, _ := callersOn(t, node)
	client := configurationv1.NewConfigurationServiceClient(caller.connect(t, writerAddress(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	t.Cleanup(cancel)
	stream, err := client.WatchConfigurations(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&configurationv1.WatchConfigurationsRequest{Node: node, Handlers: handlers}))
	return &configurationWatch{T: t, BidiStreamingClient: stream}
}

// next receives the next state of a Configuration, or nil if it is removed.
func (w *configurationWatch) next(name string) *configurationv1.Configuration {
	w.Helper()
	for {
		response, err := w.Recv()
		require.NoError(w, err)
		if response.GetRemoved().GetName() == name {
			return nil
		}
		changed := response.GetSnapshot().GetConfigurations()
		if updated := response.GetUpdated(); updated != nil {
			changed = append(changed, updated)
		}
		w.received = append(w.received, changed...)
		for _, configuration := range changed {
			if configuration.GetName() == name {
				return configuration
			}
		}
	}
}

// password receives the next value of the property.
func (w *configurationWatch) password() string {
	w.Helper()
	return string(w.next("e2e-secret").GetRequest().GetProperties()["password"].GetValue())
}
