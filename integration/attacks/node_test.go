package attacks_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/attacks"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Without this, an attack that finds nothing would prove nothing.
func TestLeaksAreFound(t *testing.T) {
	n := attacks.Node{}
	clean := &instancev1.ReserveSlotsResponse{}
	n.Check(clean, "secret", "namespace")
	require.Zero(t, n.Leaked.Load())

	n.Check(&instancev1.Instance{Namespace: "a-namespace"}, "secret", "namespace")
	require.EqualValues(t, 1, n.Leaked.Load())
	n.Check(&configurationv1.Configuration{Name: "a", Request: &configurationv1.DiscoveryRequest{Details: "a secret"}}, "secret")
	require.EqualValues(t, 2, n.Leaked.Load())
}
