package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/desired"
)

// writtenAgain is an annotation of a ResourceSlice with the time when it was written without
// another change.
const writtenAgain = akriv0.Group + "/written-again"

// reconcilePool makes the slices of the pool those that the Instances require. With again it writes
// a slice in any case: the scheduler then retries all Pods.
func (c *controller) reconcilePool(ctx context.Context, pool string, again bool, owner metav1.OwnerReference) error {
	current := c.Cache.Slices.ByIndex(byPool, pool)
	offers := slices.Concat(c.presentIn(pool), c.lostIn(pool, current))
	changes := c.features.Changes(pool, current, offers, owner)
	if again && len(changes) == 0 && len(current) > 0 {
		touched := current[0].DeepCopy()
		metav1.SetMetaDataAnnotation(&touched.ObjectMeta, writtenAgain, time.Now().UTC().Format(time.RFC3339Nano))
		changes = append(changes, desired.Change{Current: current[0], Wanted: touched})
	}

	written := map[string]*resourcev1.ResourceSlice{} // a slice can be written twice
	for _, change := range changes {
		switch {
		case change.Wanted == nil:
			if err := c.slices.remove(ctx, change.Current); err != nil {
				return err
			}
		case change.Current == nil:
			if _, err := c.slices.create(ctx, change.Wanted); err != nil {
				return err
			}
		default:
			updated, err := c.slices.update(ctx, cmp.Or(written[change.Current.Name], change.Current), change.Wanted)
			if err != nil {
				return err
			}
			written[updated.Name] = updated
		}
	}
	return nil
}

// pool returns the pool of the Instance. A claim that was allocated while the API server had no
// consumable capacity, when each device is in a pool of its own, keeps the device there.
func (c *controller) pool(instance *akriv0.Instance) string {
	earlier := akriv0.InstancePool(instance.Namespace, instance.Name)
	if len(c.Cache.Claims.ByIndex(byPool, earlier)) > 0 {
		return earlier
	}
	return c.features.Pool(instance)
}

// allocationChanged reconciles the pools of the devices that the claim has, or had, in another pool
// than theirs.
func (c *controller) allocationChanged(claim *resourcev1.ResourceClaim) {
	if claim == nil {
		return
	}
	for _, result := range allocated(claim) {
		namespace, name := akriv0.InstanceOfDevice(result.Pool, result.Device)
		instance, exists := c.Cache.Instances.Get(namespace + "/" + name)
		if exists && c.features.Pool(instance) != result.Pool {
			c.queue.Add(key{name: result.Pool})
			c.queue.Add(key{name: c.features.Pool(instance)})
		}
	}
}

// presentIn returns the devices of the Instances of the pool, by name. It omits a device that still
// is in a slice of another pool.
func (c *controller) presentIn(pool string) (offers []desired.Offer) {
	for _, instance := range c.instancesOf(pool) {
		isElsewhere := func(slice *resourcev1.ResourceSlice) bool { return slice.Spec.Pool.Name != pool }
		published := c.Cache.Slices.ByIndex(byDevice, instance.Namespace+"/"+instance.Name)
		if c.pool(instance) == pool && !slices.ContainsFunc(published, isElsewhere) {
			offers = append(offers, c.offers(instance)...)
		}
	}
	slices.SortFunc(offers, func(a, b desired.Offer) int { return cmp.Compare(a.Name, b.Name) })
	return offers
}

// instancesOf returns all Instances that can be in the pool, and others.
func (c *controller) instancesOf(pool string) []*akriv0.Instance {
	namespace, rest, _ := strings.Cut(pool, "/")
	kind, name, _ := strings.Cut(rest, "/")
	switch kind {
	case akriv0.NodePools:
		return slices.DeleteFunc(c.Cache.Instances.ByIndex(byNode, name), func(instance *akriv0.Instance) bool {
			return instance.Namespace != namespace
		})
	case akriv0.ConfigurationPools:
		return c.Cache.Instances.ByIndex(byConfiguration, namespace+"/"+name)
	}
	if instance, exists := c.Cache.Instances.Get(pool); exists {
		return []*akriv0.Instance{instance}
	}
	return nil
}

// offers returns what a pool offers of the device of the Instance.
func (c *controller) offers(instance *akriv0.Instance) []desired.Offer {
	device := desired.Device{Instance: instance}
	device.Configuration, _ = c.Cache.Configurations.Get(instance.Namespace + "/" + instance.Spec.ConfigurationName)
	for _, nodeName := range instance.Spec.Nodes {
		if node, exists := c.Cache.Nodes.Get(nodeName); exists && c.usesDRA(node) {
			device.Nodes = append(device.Nodes, node)
		}
	}
	return c.features.Offers(device)
}

// lostIn returns the published devices of Instances that do not exist any more, and whose
// Configuration has their Pods evicted. They stay in their slices for a while, with a taint.
func (c *controller) lostIn(pool string, published []*resourcev1.ResourceSlice) (offers []desired.Offer) {
	for _, slice := range published {
		for _, device := range slice.Spec.Devices {
			namespace, name := akriv0.InstanceOfDevice(pool, device.Name)
			_, isPresent := c.Cache.Instances.Get(namespace + "/" + name)
			configuration, exists := c.Cache.Configurations.Get(namespace + "/" + desired.ConfigurationOf(device))
			if isPresent || !exists || !c.features.EvictsPods(configuration) {
				continue
			}
			wait, tainted := desired.LostWait(device)
			now := time.Now()
			if tainted && wait.Over(now) {
				continue
			}
			if tainted {
				c.queue.AddAfter(key{name: pool}, wait.Left(now))
			}
			offers = append(offers, desired.Lost(slice, device))
		}
	}
	return offers
}

// devicesOf returns the Instances of the devices of a slice.
func devicesOf(slice *resourcev1.ResourceSlice) []string {
	names := make([]string, 0, len(slice.Spec.Devices))
	for _, device := range slice.Spec.Devices {
		namespace, name := akriv0.InstanceOfDevice(slice.Spec.Pool.Name, device.Name)
		names = append(names, namespace+"/"+name)
	}
	return slices.Compact(names)
}
