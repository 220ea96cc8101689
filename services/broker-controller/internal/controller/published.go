package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	"akri.sh/services/broker-controller/internal/cluster"
)

// untilPublished returns for how long the brokers of the Instance wait for its DeviceClass, without
// which kube-scheduler cannot allocate the device: it would try a broker that is created earlier
// again after a second, and could bind it without its device (see withoutDevice). It is zero if no
// device of the cluster is published.
func (c *Controller) untilPublished(instance *akriv0.Instance, now time.Time) time.Duration {
	_, inUse := c.Cache.DeviceClasses.Get(akriv0.Driver)
	_, published := c.Cache.DeviceClasses.Get(akriv0.DeviceClassName(instance.Name))
	if !inUse || published {
		return 0
	}
	publication := grace.Wait{
		Awaited: "the device is published", Since: c.sightings.ofInstance(instance, now), For: c.PublicationTimeout, Then: "brokers are created",
	}
	return publication.Left(now)
}

// classChanged reconciles the Instances whose brokers wait for the DeviceClass.
func (c *Controller) classChanged(before, after *metav1.PartialObjectMetadata) {
	if before != nil || after == nil {
		return
	}
	for _, instance := range c.Cache.InstancesNamed(akriv0.ResourceOfClass(after.Name)) {
		c.instances.Add(cluster.Key(instance.Namespace, instance.Name))
	}
}
