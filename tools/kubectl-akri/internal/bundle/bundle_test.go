package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/tools/kubectl-akri/internal/bundle"
)

const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJha3JpIn0.c2lnbmF0dXJl"

// files returns the files of an archive.
func files(t *testing.T, text []byte) map[string]string {
	t.Helper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	archive := tar.NewReader(uncompressed)
	found := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		require.Equal(t, int64(0o600), header.Mode)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		found[header.Name] = string(content)
	}
}

// TestNoSecrets puts secrets where users have them and checks that no file has one.
func TestNoSecrets(t *testing.T) {
	s := fixture.Load(t, "../../../../libs/inspect/explain/testdata/healthy.yaml", "../../../../libs/inspect/explain/testdata/details-refused.yaml")
	const property, variable, applied, secret = "property-hunter22", "variable-hunter22", "applied-hunter22", "secret-hunter22"
	value := property
	c := &s.Configurations[0]
	c.Spec.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "password", Value: &value}}
	c.Spec.BrokerProperties = map[string]string{"CAMERA_PASSWORD": variable}
	c.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"password":"` + applied + `"}`}
	c.Status.Conditions[0].Message = "login with " + property + " refused"
	s.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "instance-writer", RestartCount: 1}}
	s.Pods[0].Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LOGIN_TOKEN", Value: secret}, {Name: "AKRI_LOG_LEVEL", Value: "debug"}}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "akri.sh/v0", Kind: "Configuration", Name: "camera"},
		Message:        "token " + jwt + " and " + variable,
	}
	other := event.DeepCopy()
	other.Name, other.InvolvedObject.APIVersion, other.Message = "other", "v1", "of a Pod of another user"
	client := &cluster.Client{Kubernetes: fake.NewClientset(
		event, other, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: "default"}, Data: map[string][]byte{"password": []byte(secret)}},
	)}
	var out bytes.Buffer
	require.NoError(t, bundle.Write(t.Context(), &out, client, s, "akri-bundle", time.Unix(0, 0)))
	found := files(t, out.Bytes())
	for name, text := range found {
		for _, hidden := range []string{property, variable, applied, secret, jwt, "another user"} {
			require.NotContains(t, text, hidden, name)
		}
	}
	names := []string{}
	for name := range found {
		names = append(names, strings.TrimPrefix(name, "akri-bundle/"))
	}
	slices.Sort(names)
	require.Equal(t, []string{
		"explain.txt", "logs/akri-system/akri-instance-writer-1/instance-writer.log", "logs/akri-system/akri-instance-writer-1/instance-writer.previous.log",
		"objects/configurations.yaml", "objects/daemonsets.yaml", "objects/deployments.yaml", "objects/events.yaml", "objects/instances.yaml",
		"objects/jobs.yaml", "objects/nodes.yaml", "objects/pods.yaml", "objects/version.yaml", "objects/webhooks.yaml", "status.txt",
	}, names)
	require.Contains(t, found["akri-bundle/objects/configurations.yaml"], "name: password")
	require.Contains(t, found["akri-bundle/objects/configurations.yaml"], "login with MASKED refused")
	require.Contains(t, found["akri-bundle/objects/events.yaml"], "token MASKED and MASKED")
	require.Contains(t, found["akri-bundle/objects/pods.yaml"], "value: debug")
	require.Contains(t, found["akri-bundle/explain.txt"], "DetailsRefused")
}
