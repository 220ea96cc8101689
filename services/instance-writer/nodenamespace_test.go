package instancewriter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"

	instancewriter "akri.sh/services/instance-writer"
)

// TestNamespaceOfNodes checks that the CA certificates are published in the namespace of the node
// services, and that only their service accounts in that namespace may call.
func TestNamespaceOfNodes(t *testing.T) {
	const own, name = "kube-public", "ca-of-nodes"
	config := api.Config()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Secrets(own).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	f := newFixture(t, 1, 1)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: config}, NodeGrace: grace, Namespace: own, NodeNamespace: namespace,
		TLS: instancewriter.TLSConfig{Name: name, Lifetimes: slow},
	})
	for callers, expected := range map[string]codes.Code{namespace: codes.OK, own: codes.PermissionDenied} {
		watch, err := r.client(token(t, callers, host, f.nodes[0], audience)).
			WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: f.nodes[0]})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.Equal(t, expected, status.Code(err), "%s: %v", callers, err)
	}
}
