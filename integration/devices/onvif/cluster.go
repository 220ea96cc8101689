package onvif

import (
	"context"
	"errors"
	"net/netip"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices/netns"
)

// StartOn starts a fleet on the network of the cluster's nodes. The number is different for each
// fleet of a cluster.
func StartOn(ctx context.Context, c *cluster.Cluster, number int) (*Fleet, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	f, err := startIn(ctx, namespace, c, number)
	if err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	f.namespace = namespace
	return f, nil
}

func startIn(ctx context.Context, namespace *netns.Namespace, c *cluster.Cluster, number int) (*Fleet, error) {
	address, err := c.Link(ctx, namespace.ID(), number)
	if err != nil {
		return nil, err
	}
	if err := namespace.IP("addr add "+address+"/24 dev eth0", "link set eth0 up", "route add default via "+c.Gateway()); err != nil {
		return nil, err
	}
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return nil, err
	}
	f, err := Start(ctx, Conditions{Namespace: namespace.Path(), Interface: "eth0"})
	if err == nil {
		f.Address = parsed
	}
	return f, err
}
