package instancewriter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"

	instancewriter "akri.sh/services/instance-writer"
)

// TestNamespaceOfNodes checks that the CA certificates are published in the namespace of the node
// services, and that only their service accounts in that namespace may call.
func TestNamespaceOfNodes(t *testing.T) {
	const own = "kube-public"
	name := createCAIn(t, own, namespace)
	f := newFixture(t, 1, 1)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, Namespace: own, NodeNamespace: namespace,
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
