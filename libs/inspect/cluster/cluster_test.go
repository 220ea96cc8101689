package cluster_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/inspect/cluster"
)

// pods are one of Akri, two that request a device, one of them with a ResourceClaim, and two that
// do not, one of them with a ResourceClaim of another driver.
const pods = `{"kind": "PodList", "apiVersion": "v1", "items": [
	{"metadata": {"name": "registrar", "labels": {"app.kubernetes.io/part-of": "akri"}}},
	{"metadata": {"name": "user"}, "spec": {"containers": [{"name": "main", "resources": {"limits": {"akri.sh/camera": "1"}}}]}},
	{"metadata": {"name": "claiming", "namespace": "default"}, "spec": {"resourceClaims": [{"name": "device", "resourceClaimName": "camera"}]}},
	{"metadata": {"name": "gpu", "namespace": "default"}, "spec": {"resourceClaims": [{"name": "device", "resourceClaimName": "gpu"}]}},
	{"metadata": {"name": "other"}, "spec": {"nodeName": "node-a", "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}]}`

const claims = `{"kind": "ResourceClaimList", "apiVersion": "resource.k8s.io/v1", "items": [
	{"metadata": {"name": "camera", "namespace": "default"}, "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "camera.akri.sh"}}]}}},
	{"metadata": {"name": "gpu", "namespace": "default"}, "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}}]}}}]}`

func list(path string) string {
	switch {
	case strings.HasSuffix(path, "/pods"):
		return pods
	case strings.HasSuffix(path, "/resourceclaims"):
		return claims
	case strings.HasSuffix(path, "/configurations"):
		return `{"kind": "ConfigurationList", "apiVersion": "akri.sh/v0", "items": [{"metadata": {"name": "camera"}}]}`
	case strings.HasSuffix(path, "/deployments"):
		return `{"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [{"metadata": {"name": "akri-instance-writer", "namespace": "akri-system"}}]}`
	case path == "/apis/akri.sh/v0":
		return `{"kind": "APIResourceList", "resources": [{"name": "configurations"}, {"name": "instances"}]}`
	default:
		return `{"items": []}`
	}
}

// apiServer answers with the code, or with lists if it is 200.
func apiServer(t *testing.T, code func(path string) int) *cluster.Client {
	t.Helper()
	return serve(t, func(r *http.Request) int { return code(r.URL.Path) })
}

func serve(t *testing.T, code func(*http.Request) int) *cluster.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := code(r), list(r.URL.Path)
		if status != http.StatusOK {
			reason := strings.ReplaceAll(http.StatusText(status), " ", "")
			text = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "` + reason + `", "message": "test"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	client, err := cluster.New(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return client
}

func TestSnapshot(t *testing.T) {
	s, err := apiServer(t, func(string) int { return http.StatusOK }).Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.False(t, s.OneNamespace)
	require.Empty(t, s.Unreadable)
	require.Len(t, s.Configurations, 1)
	var names []string
	for _, pod := range s.Pods {
		names = append(names, pod.Name)
	}
	require.Equal(t, []string{"registrar", "user", "claiming"}, names, "only Pods of Akri, and those that request devices")
	require.Len(t, s.ResourceClaims, 2)
	cpu := s.Requested["node-a"][corev1.ResourceCPU]
	require.Equal(t, "2", cpu.String(), "all Pods count")
}

// TestEvents checks that Events are read in the namespaces of Akri only, except those about
// ResourceClaims that a node could not prepare: Events of others can be many, and are none of
// Akri's business.
func TestEvents(t *testing.T) {
	var mu sync.Mutex
	var found []string
	client := serve(t, func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/events") {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, r.URL.Path+" "+r.URL.Query().Get("fieldSelector"))
		}
		return http.StatusOK
	})
	_, err := client.Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"/api/v1/namespaces/akri-system/events type=Warning",
		"/api/v1/events reason=FailedPrepareDynamicResources",
	}, found)
}

// A user with rights in one namespace sees what is in it.
func TestOneNamespace(t *testing.T) {
	s, err := apiServer(t, func(path string) int {
		if strings.Contains(path, "/namespaces/default/") {
			return http.StatusOK
		}
		return http.StatusForbidden
	}).Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.True(t, s.OneNamespace)
	require.Equal(t, []string{"daemonsets", "deployments", "nodes", "resourceslices", "validatingwebhookconfigurations"}, s.Unreadable)
	require.Len(t, s.Configurations, 1)
}

// A cluster of an earlier version has no ResourceClaims.
func TestNoClaims(t *testing.T) {
	s, err := apiServer(t, func(path string) int {
		if strings.Contains(path, "/resource.k8s.io/") {
			return http.StatusNotFound
		}
		return http.StatusOK
	}).Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.False(t, s.NoAPI())
	require.Len(t, s.Configurations, 1)
}

func TestNoAPI(t *testing.T) {
	s, err := apiServer(t, func(path string) int {
		if strings.Contains(path, "/akri.sh/") {
			return http.StatusNotFound
		}
		return http.StatusOK
	}).Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.True(t, s.NoAPI())
}

func TestError(t *testing.T) {
	_, err := apiServer(t, func(string) int { return http.StatusBadRequest }).Snapshot(t.Context(), "default")
	require.ErrorContains(t, err, "list ")
}
