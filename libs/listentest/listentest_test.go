package listentest_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/listentest"
)

// Addresses stay free while others listen on free ports of 127.0.0.1, and all differ.
func TestAddressStaysFree(t *testing.T) {
	const addresses, others = 500, 2000
	var all []string
	for range addresses {
		all = append(all, listentest.Address(t))
	}

	for range others {
		other, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer other.Close()
	}

	for _, address := range all {
		listener, err := net.Listen("tcp", address)
		require.NoError(t, err)
		defer listener.Close()
	}
}
