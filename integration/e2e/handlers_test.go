package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"

	"akri.sh/integration/cluster"
)

// Statuses of handlers.
const (
	waiting = registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	active  = registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE
	offline = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
)

// dialNode returns a connection to the socket of a node's service, which operators use with
// grpcurl.
func dialNode(t *testing.T, node cluster.Node, service string) *grpc.ClientConn {
	t.Helper()
	return dialSocket(t, filepath.Join(node.RunDir(), service, service+".sock"))
}

func dialSocket(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// awaitHandlers waits until the registrar of the node lists exactly the endpoints with the
// statuses, in any order, and returns them in that order.
func awaitHandlers(t *testing.T, node cluster.Node, name string, want ...registrarv1.HandlerStatus) []*registrarv1.Handler {
	t.Helper()
	registrar := registrarv1.NewRegistrarServiceClient(dialNode(t, node, "registrar"))
	slices.Sort(want)
	var found []*registrarv1.Handler
	await(t, fmt.Sprintf("handlers %s on %s to be %v", name, node.Name(), want), func(ctx context.Context) error {
		table, err := registrar.ListHandlers(ctx, &registrarv1.ListHandlersRequest{})
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(table.GetHandlers(), func(h *registrarv1.Handler) bool { return h.GetName() != name })
		slices.SortStableFunc(found, func(a, b *registrarv1.Handler) int { return int(a.GetStatus() - b.GetStatus()) })
		var statuses []registrarv1.HandlerStatus
		for _, handler := range found {
			statuses = append(statuses, handler.GetStatus())
		}
		if !slices.Equal(statuses, want) {
			return fmt.Errorf("the handlers are %v", found)
		}
		return nil
	})
	return found
}

// awaitInventory waits until the node's list of the Configuration has exactly the devices and is
// complete or not.
func awaitInventory(t *testing.T, node cluster.Node, configuration string, complete bool, ids ...string) {
	t.Helper()
	operator := discoveryv1.NewDeviceInventoryServiceClient(dialNode(t, node, "discovery-operator"))
	await(t, fmt.Sprintf("devices %v of %s on %s, complete: %t", ids, configuration, node.Name(), complete), func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := operator.WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{})
		if err != nil {
			return err
		}
		inventory, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, list := range inventory.GetConfigurations() {
			if list.GetName() != configuration {
				continue
			}
			var found []string
			for _, device := range list.GetDevices() {
				found = append(found, device.GetId())
			}
			slices.Sort(found)
			if list.GetComplete() == complete && slices.Equal(found, ids) {
				return nil
			}
			return fmt.Errorf("the devices are %v, complete: %t", found, list.GetComplete())
		}
		return fmt.Errorf("there is no list")
	})
}
