package onvif

import (
	"context"
	"errors"
	"net/netip"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices/netns"
)

// ClusterFleet is a Fleet on the network of a cluster's nodes.
type ClusterFleet struct {
	*Fleet

	// Address of all cameras.
	Address   netip.Addr
	namespace *netns.Namespace
}

// StartOn starts a fleet on the network of the cluster's nodes. The number is different for each
// fleet of a cluster.
func StartOn(ctx context.Context, c *cluster.Cluster, number int) (*ClusterFleet, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	f := &ClusterFleet{namespace: namespace}
	if err := f.start(ctx, c, number); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return f, nil
}

func (f *ClusterFleet) start(ctx context.Context, c *cluster.Cluster, number int) error {
	address, err := c.Link(ctx, f.namespace.ID(), number)
	if err != nil {
		return err
	}
	if err := f.namespace.IP("addr add "+address+"/24 dev eth0", "link set eth0 up"); err != nil {
		return err
	}
	if f.Address, err = netip.ParseAddr(address); err != nil {
		return err
	}
	f.Fleet, err = Start(ctx, Conditions{Namespace: f.namespace.Path(), Interface: "eth0"})
	return err
}

// Stop stops the fleet and removes its network namespace.
func (f *ClusterFleet) Stop() error {
	f.Fleet.Stop()
	return f.namespace.Close()
}
