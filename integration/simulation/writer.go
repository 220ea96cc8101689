package simulation

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/process"
)

// Service accounts of the callers of instance-writer.
const (
	DiscoveryOperator = "akri-discovery-operator"
	DevicePluginHost  = "akri-device-plugin-host"
	Agent             = "akri-agent"
)

const (
	// Namespace of all objects.
	Namespace = "default"

	writerService = "akri-instance-writer"
	// defaultMemory is the limit of the container in the chart in MiB.
	defaultMemory = 384
)

// Writer is an instance-writer in a process of its own.
type Writer struct {
	*process.Process
	// Address serves with TLS, PlainAddress in plain text.
	Address, PlainAddress string
}

// startWriter starts an instance-writer. Its objects are those of createChartObjects. memory is its
// limit in MiB, or 0 for that of the chart.
func startWriter(ctx context.Context, api *kubetest.Server, memory int) (_ *Writer, err error) {
	w := &Writer{}
	if w.Address, err = process.FreeAddress(ctx); err != nil {
		return nil, err
	}
	if w.PlainAddress, err = process.FreeAddress(ctx); err != nil {
		return nil, err
	}
	limit := fmt.Sprintf("GOMEMLIMIT=%dMiB", cmp.Or(memory, defaultMemory))
	w.Process, err = process.StartWithEnv(ctx, api, []string{limit}, "instance-writer",
		"--address", w.Address, "--plain-address", w.PlainAddress, "--namespace", Namespace, "--admin-address=", "--log-level=error")
	if err != nil {
		return nil, err
	}
	return w, nil
}

// NamedAddress is Address with a name of the server's certificate.
func (w *Writer) NamedAddress() (string, error) {
	_, port, err := net.SplitHostPort(w.Address)
	return net.JoinHostPort("localhost", port), err
}
