package cleanup_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/services/cleanup"
)

const ownPods = " Your own Pods with devices can only end while Akri is installed: " +
	"delete them before you uninstall it, or install it again.\n"

func before(c *cleanup.Config) { c.BeforeUninstall = true }

// TestEndsBrokersBeforeUninstall waits for a broker until the kubelet has ended it. A second run,
// after an uninstallation that failed, finds nothing.
func TestEndsBrokersBeforeUninstall(t *testing.T) {
	e := newTestEnv(t)
	e.brokerController(component("broker-controller", "akri"))
	e.instance("default", "camera-000001")
	e.podOn("node-a", "broker", createdByAkri)
	e.job("broker-job", createdByAkri)
	e.service("broker-svc", createdByAkri)
	e.pod("mine", nil)
	e.lease("akri-broker-controller")

	var output bytes.Buffer
	_, done := start(t, before, func(c *cleanup.Config) { c.Output = &output })
	e.awaitDeletion("broker")
	select {
	case err := <-done:
		require.Fail(t, "the broker was not awaited", "%v", err)
	default:
	}
	now := int64(0)
	require.NoError(t, e.pods.Delete(t.Context(), "broker", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.NoError(t, <-done)

	require.Equal(t, "Removed the brokers (Pods: 1, Jobs: 1)."+ownPods, output.String())
	require.Empty(t, names(e, e.deployments))
	require.Empty(t, names(e, e.jobs))
	require.Equal(t, []string{"mine"}, names(e, e.pods))
	require.Equal(t, []string{"broker-svc", "kubernetes"}, names(e, e.services))
	require.Equal(t, []string{"camera-000001"}, names(e, e.instances))
	require.Equal(t, []string{"akri-broker-controller"}, names(e, e.leases))

	output.Reset()
	_, done = start(t, before, func(c *cleanup.Config) { c.Output = &output })
	require.NoError(t, <-done)
	require.Equal(t, "Removed the brokers (Pods: 0, Jobs: 0)."+ownPods, output.String())
}

func TestBrokerControllerEndsBeforeBrokers(t *testing.T) {
	e := newTestEnv(t)
	e.pod("controller", component("broker-controller", "akri"))
	e.pod("writer", component("instance-writer", "akri"))
	e.pod("broker", createdByAkri)

	logs, done := start(t, before)
	require.Eventually(t, func() bool { return logs.FilterMessage("waiting for the end of the release's Pods").Len() > 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"broker", "controller", "writer"}, names(e, e.pods))

	now := int64(0)
	require.NoError(t, e.pods.Delete(t.Context(), "controller", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.NoError(t, <-done)
	require.Equal(t, []string{"writer"}, names(e, e.pods), "instance-writer is needed to end Pods with claims")
}

// TestBrokersThatDoNotEnd has a broker on a node that is off, which must not end the
// uninstallation.
func TestBrokersThatDoNotEnd(t *testing.T) {
	e := newTestEnv(t)
	e.podOn("lost", "broker", createdByAkri)

	var output bytes.Buffer
	_, done := start(t, before, func(c *cleanup.Config) { c.Output, c.WritersTimeout, c.Timeout = &output, time.Second, 2*time.Second })
	require.NoError(t, <-done)
	require.Equal(t, "Removed the brokers (Pods: 1, Jobs: 0), but after 2s these have not ended: Pod default/broker. "+
		"They stay Terminating until their nodes run and Akri is installed again."+ownPods, output.String())
}

// TestOtherBrokerControllerStays has a Deployment that replaces the release's broker-controller,
// and then another installation.
func TestOtherBrokerControllerStays(t *testing.T) {
	for name, c := range map[string]struct {
		agents, left []string
		output       string
	}{
		"replaced service":   {nil, nil, "Removed the brokers (Pods: 1, Jobs: 0)." + ownPods},
		"other installation": {[]string{"agent"}, []string{"agent", "broker"}, "Nothing removed: another installation of Akri runs in this cluster (Pod default/agent).\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			e.brokerController(component("broker-controller", "other"))
			e.pod("broker", createdByAkri)
			for _, agent := range c.agents {
				e.pod(agent, component("agent", "other"))
			}
			var output bytes.Buffer
			_, done := start(t, before, func(c *cleanup.Config) { c.Output = &output })
			require.NoError(t, <-done)
			require.Equal(t, c.output, output.String())
			require.Equal(t, []string{"akri-controller-deployment"}, names(e, e.deployments))
			require.Equal(t, c.left, names(e, e.pods))
		})
	}
}

// TestRefusedRequestsAreErrors has no right to delete brokers, and then no rights.
func TestRefusedRequestsAreErrors(t *testing.T) {
	readOnly := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}},
	}
	for user, c := range map[string]struct {
		rules   []rbacv1.PolicyRule
		message string
	}{
		"reader": {readOnly, `delete Pod default/broker: pods "broker" is forbidden`},
		"client": {nil, "list pods: pods is forbidden"},
	} {
		t.Run(user, func(t *testing.T) {
			e := newTestEnv(t)
			e.pod("broker", createdByAkri)
			if c.rules != nil {
				e.allow(user, c.rules...)
			}
			var output bytes.Buffer
			_, done := start(t, before, func(c *cleanup.Config) {
				c.REST.Impersonate.UserName = user
				c.Output, c.WritersTimeout, c.Timeout = &output, time.Second, 2*time.Second
			})
			require.ErrorContains(t, <-done, c.message)
			require.Contains(t, output.String(), "Removing the brokers failed: ")
			require.Contains(t, output.String(), c.message)
			require.Equal(t, []string{"broker"}, names(e, e.pods))
		})
	}
}

// TestStoppedProcessIsAnError stops the process in its first attempt or a later one, so that its
// Job starts another process.
func TestStoppedProcessIsAnError(t *testing.T) {
	for name, request := range map[string]stopAfter{
		"first attempt":  {method: http.MethodDelete, path: "/pods/broker", count: 1},
		"second attempt": {method: http.MethodGet, path: "/jobs", count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			e.podOn("node-a", "broker", createdByAkri)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request.stop = cancel
			_, done := startWith(ctx, t, before, func(c *cleanup.Config) {
				c.REST.Wrap(func(next http.RoundTripper) http.RoundTripper {
					request.RoundTripper = next
					return &request
				})
			})
			require.ErrorIs(t, <-done, context.Canceled)
			require.Equal(t, []string{"broker"}, names(e, e.pods))
		})
	}
}

// stopAfter stops the process after a number of requests, which it makes one at a time.
type stopAfter struct {
	http.RoundTripper

	method, path string
	count        int
	stop         func()
}

func (s *stopAfter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(request)
	if request.Method == s.method && strings.HasSuffix(request.URL.Path, s.path) {
		if s.count--; s.count == 0 {
			s.stop()
		}
	}
	return response, err
}
