package cluster

import (
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// The limits of the devices of one node: of those in its reports, and of the Instances that list
// it. Without them one node could fill the memory of all replicas and etcd. The bytes are those of
// ids and properties. MaxNodeText are those of the handlers and problems in its reports.
// MaxDeviceBytes are those of one device: etcd stores no object of more than 1.5 MiB.
const (
	MaxNodeDevices = 10_000
	MaxNodeBytes   = 8 << 20
	MaxNodeText    = 1 << 20
	MaxDeviceBytes = 1 << 20
)

// usage is what the Instances that list a node have.
type usage struct{ instances, bytes int }

func (u *usage) add(other usage) {
	u.instances, u.bytes = u.instances+other.instances, u.bytes+other.bytes
}

// usageOf returns what the Instance adds to the usage of the node. The Instance may be nil.
func usageOf(instance *akriv0.Instance, node string) usage {
	if instance == nil || !slices.Contains(instance.Spec.Nodes, node) {
		return usage{}
	}
	return usage{1, InstanceBytes(instance)}
}

// InstanceBytes returns the size of the id and the properties of an Instance, as
// merge.Device.Size does except for escaped characters.
func InstanceBytes(instance *akriv0.Instance) int {
	bytes := len(instance.Annotations[akriv0.DeviceIDAnnotation]) + len("{}")
	for key, value := range instance.Spec.BrokerProperties {
		bytes += len(key) + len(value) + len(`"":"",`)
	}
	return bytes
}

// countUsage updates the usage of the nodes. before or after is nil if the Instance is new or
// deleted. It is called with mu held.
func (c *Cluster) countUsage(before, after *akriv0.Instance) {
	if before != nil && after != nil && slices.Equal(before.Spec.Nodes, after.Spec.Nodes) && InstanceBytes(before) == InstanceBytes(after) {
		return
	}
	count := func(instance *akriv0.Instance, sign int) {
		if instance == nil {
			return
		}
		bytes := InstanceBytes(instance)
		for _, node := range instance.Spec.Nodes {
			used := c.usages[node]
			used.add(usage{sign, sign * bytes})
			if c.usages[node] = used; used == (usage{}) {
				delete(c.usages, node)
			}
		}
	}
	count(before, -1)
	count(after, 1)
}

// Fits reports whether the Instances that list the node can grow by a number of Instances and
// bytes. It counts the writes of this process that the watch has not delivered yet, but not those
// in progress.
func (c *Cluster) Fits(node string, instances, bytes int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := c.usages[node]
	used.add(usage{instances, bytes})
	written, err := c.written.ByIndex(byNode, node)
	if err != nil {
		panic(err) // the index was not declared
	}
	for _, object := range written {
		write := object.(ownWrite)
		watched := usageOf(c.Watched(Key(write.Instance)), node)
		used.add(usage{-watched.instances, -watched.bytes})
		if !write.deleted {
			used.add(usageOf(write.Instance, node))
		}
	}
	return used.instances <= MaxNodeDevices && used.bytes <= MaxNodeBytes
}
