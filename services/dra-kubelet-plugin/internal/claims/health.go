package claims

import (
	"context"
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
)

// Health is the state of a device, named as in a ResourceSlice.
type Health struct {
	Pool, Name string
	// Healthy reports whether this node sees the device.
	Healthy bool
}

// Health returns the devices of the Instances that list this node and those of prepared claims,
// ordered by pool, and a channel that is closed when they can have changed. The devices are nil
// until both sources have sent their state.
func (m *Manager) Health(ctx context.Context) ([]Health, <-chan struct{}, error) {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer m.operation.Release(1)
	snapshot, changed := m.Store.Get()
	if m.Store.CheckReady(ctx) != nil {
		return nil, changed, nil
	}
	seen := map[string]Health{}
	for name := range snapshot.InstanceNames() {
		health := healthOf(snapshot, name.Namespace, name.Name)
		seen[health.Pool] = health
	}
	for _, slots := range m.prepared {
		for _, slot := range slots {
			health := healthOf(snapshot, slot.Namespace, slot.Instance)
			seen[health.Pool] = health
		}
	}
	devices := make([]Health, 0, len(seen))
	for _, pool := range slices.Sorted(maps.Keys(seen)) {
		devices = append(devices, seen[pool])
	}
	return devices, changed, nil
}

func healthOf(snapshot *node.Snapshot, namespace, instance string) Health {
	device, exists := snapshot.Devices[instance]
	return Health{
		Pool: akriv0.DevicePool(namespace, instance), Name: instance,
		Healthy: exists && device.Instance.GetNamespace() == namespace,
	}
}
