package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/services/instance-writer/internal/cluster"
)

const (
	// eventBurst and eventInterval limit the Events of one Configuration, separately for devices
	// and for conditions.
	eventBurst    = 25
	eventInterval = time.Minute
	// maxEventKeys is the number of Configurations whose Events are counted.
	maxEventKeys = 8192
	// eventDelay combines the changes of devices that happen at about the same time.
	eventDelay = time.Second
	// maxEventDevices is the number of devices that an Event names.
	maxEventDevices = 10
	// maxPendingDevices is the number of changes that wait for an Event. Further ones are dropped.
	maxPendingDevices = 1000
)

// createConditionEvents creates an Event for each problem that is new and for each that has ended.
// Events are best effort.
func (r *Reconciler) createConditionEvents(ctx context.Context, configuration *akriv0.Configuration, conditions []metav1.Condition) {
	for _, condition := range conditions {
		eventType := eventType(meta.FindStatusCondition(configuration.Status.Conditions, condition.Type), condition)
		if eventType == "" || !r.conditionEvents.Of(cluster.Key(configuration)).Allow() {
			continue
		}
		message := condition.Type + " is " + string(condition.Status) + ": " + condition.Message
		r.createEvent(ctx, configuration, cluster.Event{Type: eventType, Reason: condition.Reason, Message: message})
	}
}

// eventType returns the type of the Event for a change of a condition. It is empty if there should
// be none: Ready repeats another condition, and DevicesFound states no problem.
func eventType(previous *metav1.Condition, current metav1.Condition) string {
	failed := previous != nil && previous.Status == metav1.ConditionFalse
	switch {
	case current.Type == akriv0.ConditionReady || current.Type == akriv0.ConditionDevicesFound:
	case current.Status == metav1.ConditionFalse && (!failed || previous.Reason != current.Reason):
		return corev1.EventTypeWarning
	case current.Status == metav1.ConditionTrue && failed:
		return corev1.EventTypeNormal
	}
	return ""
}

func (r *Reconciler) createEvent(ctx context.Context, configuration *akriv0.Configuration, event cluster.Event) {
	if err := r.Cluster.CreateEvent(ctx, configuration, event); err != nil {
		r.Log.Warn("creating Event failed", zap.String("configuration", configuration.Name), zap.Error(err))
	}
}

// recordDevices counts and enqueues an Event if the nodes of the Instance have changed.
func (r *Reconciler) recordDevices(configuration types.NamespacedName, change change) {
	added, removed := changedNodes(change.before, change.Instance)
	if len(added)+len(removed) == 0 {
		return
	}
	// The series of a Configuration that was deleted have been removed.
	if _, exists := r.Cluster.Configurations.Get(configuration.String()); exists {
		switch {
		case change.before == nil:
			r.DeviceChanges.WithLabelValues(configuration.Name, "added").Inc()
		case change.Instance == nil:
			r.DeviceChanges.WithLabelValues(configuration.Name, "removed").Inc()
		}
	}
	r.deviceChanges.record(configuration, change.name, added, removed)
	r.events.keys.AddAfter(configuration, eventDelay)
}

// reconcileEvents creates the Events of devices that came and went since the last ones.
func (r *Reconciler) reconcileEvents(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	limiter := r.deviceEvents.Of(key)
	if remaining := kube.Remaining(limiter); remaining > 0 {
		return remaining, nil
	}
	configuration, err := r.Cluster.Configuration(ctx, key)
	if err != nil {
		return 0, err
	}
	added, removed := r.deviceChanges.take(key)
	if configuration == nil || configuration.DeletionTimestamp != nil {
		return 0, nil
	}
	for reason, devices := range map[string][]place{akriv0.ReasonDeviceAdded: added, akriv0.ReasonDeviceRemoved: removed} {
		if len(devices) > 0 {
			limiter.Reserve() // the second of two Events delays the next ones
			r.createEvent(ctx, configuration, deviceEvent(reason, devices))
		}
	}
	return 0, nil
}

func deviceEvent(reason string, devices []place) cluster.Event {
	event := cluster.Event{Type: corev1.EventTypeNormal, Reason: reason}
	var texts []string
	for _, device := range devices[:min(len(devices), maxEventDevices)] {
		texts = append(texts, device.instance+" on "+device.node)
		event.Devices = append(event.Devices, device.instance)
	}
	event.Devices = slices.Compact(event.Devices)

	event.Message = strings.Join(texts, ", ")
	if more := len(devices) - len(texts); more > 0 {
		event.Message += fmt.Sprintf(" and %d more", more)
	}
	return event
}

// changedNodes returns the nodes that only one of the Instances lists. An Instance may be nil.
func changedNodes(before, after *akriv0.Instance) (added, removed []string) {
	var old, current []string
	if before != nil {
		old = before.Spec.Nodes
	}
	if after != nil {
		current = after.Spec.Nodes
	}
	if slices.Equal(old, current) {
		return nil, nil
	}
	had, has := sets.New(old...), sets.New(current...)
	return has.Difference(had).UnsortedList(), had.Difference(has).UnsortedList()
}

// place is a device on a node.
type place struct{ instance, node string }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.instance, other.instance), cmp.Compare(p.node, other.node))
}

// deviceChanges collects the devices that came and went per Configuration. A device that went and
// came back since the last Event is no change.
type deviceChanges struct {
	mu sync.Mutex
	// pending has true for devices that came.
	pending map[types.NamespacedName]map[place]bool
}

func newDeviceChanges() *deviceChanges {
	return &deviceChanges{pending: map[types.NamespacedName]map[place]bool{}}
}

func (d *deviceChanges) record(configuration types.NamespacedName, instance string, added, removed []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending[configuration] == nil {
		d.pending[configuration] = map[place]bool{}
	}
	for _, node := range removed {
		set(d.pending[configuration], place{instance, node}, false)
	}
	for _, node := range added {
		set(d.pending[configuration], place{instance, node}, true)
	}
}

func set(pending map[place]bool, device place, came bool) {
	previous, known := pending[device]
	switch {
	case known && previous != came:
		delete(pending, device)
	case len(pending) < maxPendingDevices:
		pending[device] = came
	}
}

// take returns the changes since the last call in alphabetical order.
func (d *deviceChanges) take(configuration types.NamespacedName) (added, removed []place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for device, came := range d.pending[configuration] {
		if came {
			added = append(added, device)
		} else {
			removed = append(removed, device)
		}
	}
	delete(d.pending, configuration)
	slices.SortFunc(added, place.compare)
	slices.SortFunc(removed, place.compare)
	return added, removed
}
