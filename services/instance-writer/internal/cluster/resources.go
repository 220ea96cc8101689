package cluster

import (
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/resources"
)

// FollowRecord makes the cluster decide how Pods get devices. Call it before Run.
func (c *Cluster) FollowRecord(config *rest.Config) error {
	record, err := resources.NewRecord(config, c.namespace)
	if err != nil {
		return err
	}
	c.Record = record
	c.Informers = append(c.Informers, record)
	return nil
}

// Undecided reports whether the cluster has yet to decide how Pods get devices.
func (c *Cluster) Undecided() bool { return c.Record != nil && c.Record.Resources() == "" }

// ResourcesOn returns how Pods on the node get devices. It is empty if that is not decided yet.
// exists is false if the Node is not known.
func (c *Cluster) ResourcesOn(name string) (resources string, exists bool) {
	node, exists := c.Nodes.Get(name)
	if !exists {
		return "", false
	}
	return akriv0.ResourcesOf(node, c.Record.Resources()), true
}
