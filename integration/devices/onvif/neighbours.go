package onvif

import (
	"context"
	"errors"
	"net/netip"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices/netns"
)

// Neighbours are cameras on the network of a cluster's nodes.
type Neighbours struct {
	*Fleet

	// Address that they all have.
	Address   netip.Addr
	namespace *netns.Namespace
}

// StartOn is Start on the network of the nodes, where the number tells such neighbours apart.
func StartOn(ctx context.Context, c *cluster.Cluster, number int) (*Neighbours, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	n := &Neighbours{namespace: namespace}
	if err := n.start(ctx, c, number); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return n, nil
}

func (n *Neighbours) start(ctx context.Context, c *cluster.Cluster, number int) error {
	address, err := c.Link(ctx, n.namespace.ID(), number)
	if err != nil {
		return err
	}
	if err := n.namespace.IP("addr add "+address+"/24 dev eth0", "link set eth0 up"); err != nil {
		return err
	}
	if n.Address, err = netip.ParseAddr(address); err != nil {
		return err
	}
	n.Fleet, err = Start(ctx, Conditions{Namespace: n.namespace.Path(), Interface: "eth0"})
	return err
}

// Stop switches everything off and removes the network.
func (n *Neighbours) Stop() error {
	n.Fleet.Stop()
	return n.namespace.Close()
}
