package claims

import (
	"cmp"
	"context"
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Health is the state of a device, named as in a ResourceSlice.
type Health struct {
	Pool, Name string
	// Healthy reports whether this node sees the device.
	Healthy bool
}

// Health returns the devices of the Instances that list this node and those of prepared claims,
// ordered by pool and name, and a channel that is closed when they can have changed. The devices
// are nil until both sources have sent their state.
func (m *Manager) Health(ctx context.Context) ([]Health, <-chan struct{}, error) {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer m.operation.Release(1)
	snapshot, changed := m.Store.Get()
	if m.Store.CheckReady(ctx) != nil {
		return nil, changed, nil
	}
	seen := map[Health]bool{}
	for _, instance := range snapshot.Instances() {
		seen[healthOf(snapshot, instance.GetNamespace(), instance.GetName(), poolOf(snapshot, instance))] = true
	}
	for _, slots := range m.prepared {
		for _, slot := range slots {
			// The Instance, which determines the pool, may not exist any more.
			for _, pool := range poolsOf(snapshot, slot) {
				seen[healthOf(snapshot, slot.Namespace, slot.Instance, pool)] = true
			}
		}
	}
	devices := slices.SortedFunc(maps.Keys(seen), func(a, b Health) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	return devices, changed, nil
}

func healthOf(snapshot *node.Snapshot, namespace, instance, pool string) Health {
	device, exists := snapshot.Devices[instance]
	return Health{Pool: pool, Name: instance, Healthy: exists && device.Instance.GetNamespace() == namespace}
}

// poolOf returns the pool of the device of the Instance.
func poolOf(snapshot *node.Snapshot, instance *instancev1.Instance) string {
	onlyNode := snapshot.Node
	if instance.GetShared() {
		onlyNode = ""
	}
	return akriv0.DevicePool(instance.GetNamespace(), instance.GetConfiguration(), onlyNode, instance.GetName())
}

// poolsOf returns the pools in which the device of the slot can be.
func poolsOf(snapshot *node.Snapshot, slot node.SlotClaim) []string {
	return []string{
		akriv0.InstancePool(slot.Namespace, slot.Instance),
		akriv0.DevicePool(slot.Namespace, slot.Configuration, "", slot.Instance),
		akriv0.DevicePool(slot.Namespace, slot.Configuration, snapshot.Node, slot.Instance),
	}
}
