package soak

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// brokerKind is the workload that Akri runs for each device.
type brokerKind int

const (
	noBroker brokerKind = iota
	podBroker
	jobBroker
)

// Properties of all devices, from the brokerProperties of their Configuration. They identify the
// device of a container by its environment.
const (
	nameProperty    = "SOAK_CONFIGURATION"
	versionProperty = "SOAK_VERSION"
	// localProperty is a property of local devices, which their handler changes.
	localProperty = "SOAK_STATE"
)

// place is a device that all nodes see, or that one node sees.
type place struct{ node, device string }

// workload is a Deployment whose Pods request a device.
type workload struct {
	name string
	// device is the shared device whose Instance-level resource the Pods request. Empty: they
	// request the Configuration-level resource.
	device        string
	replicas, max int
}

// configuration is the desired state of one Configuration and of the devices that match it.
type configuration struct {
	name, handler string
	broker        brokerKind
	// places are all devices that can exist, present are those that do, with the number of changes
	// of their properties.
	places  []place
	present map[place]int
	// capacity is one of capacities.
	capacities []int32
	capacity   int32
	// version counts the changes of brokerProperties.
	version int
	exists  bool
	// removed is when the Configuration or one of its devices was removed last.
	removed   time.Time
	workloads []*workload
}

// expected is the Instance of a device.
type expected struct {
	configuration, device string
	nodes                 []string
	capacity              int32
	properties            map[string]string
}

// model is the desired state. One goroutine at a time changes it, with update, and may read it
// directly. The methods are safe for concurrent use.
type model struct {
	mu             sync.Mutex
	nodes          []string
	configurations []*configuration
}

// instances returns the Instances that must exist, by name.
func (m *model) instances() map[string]expected {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]expected{}
	for _, c := range m.configurations {
		if c.exists {
			maps.Copy(all, c.instances(m.nodes))
		}
	}
	return all
}

// update changes the model.
func (m *model) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// wants reports whether the Instance must exist.
func (m *model) wants(instance string) bool {
	_, wanted := m.instances()[instance]
	return wanted
}

func (c *configuration) instances(nodes []string) map[string]expected {
	all := map[string]expected{}
	for p, state := range c.present {
		e := expected{
			configuration: c.name, device: p.device, nodes: nodes, capacity: c.capacity,
			properties: map[string]string{nameProperty: c.name, versionProperty: strconv.Itoa(c.version)},
		}
		if p.node != "" {
			e.nodes = []string{p.node}
		}
		if c.handler == localHandler {
			e.properties[localProperty] = strconv.Itoa(state)
		}
		all[c.instance(p)] = e
	}
	return all
}

// instance returns the name of the Instance. No two devices of a soak have the same digest.
func (c *configuration) instance(p place) string {
	return akriv0.InstanceName(c.name, akriv0.Digest(p.device, p.node, p.node == ""))
}

// brokers returns the number of brokers of an Instance.
func (c *configuration) brokers(e expected) int {
	if c.broker == noBroker {
		return 0
	}
	if c.broker == jobBroker {
		return 1
	}
	return min(len(e.nodes), int(e.capacity))
}

// running returns the number of Pods of all workloads that must run: as many as there are slots.
func (c *configuration) running(nodes []string) (count int) {
	free := 0
	for _, e := range c.instances(nodes) {
		free += int(e.capacity)
		if c.broker == podBroker {
			free -= c.brokers(e)
		}
	}
	for _, w := range c.workloads {
		if _, exists := c.present[place{"", w.device}]; w.device == "" || exists {
			count += w.replicas
		}
	}
	return min(count, free)
}

// descriptions returns the shared devices that exist, sorted.
func (c *configuration) descriptions() []string {
	found := []string{}
	for p := range c.present {
		found = append(found, p.device)
	}
	slices.Sort(found)
	return found
}

// newModel returns a model in which all devices exist. Each device has slots for its brokers and
// for the workloads, except those of soak-crowd, whose workload requests more than exist.
func newModel(nodes []string) *model {
	n := int32(len(nodes))
	m := &model{nodes: nodes, configurations: []*configuration{
		{
			name: "soak-pods", handler: "debugEcho", broker: podBroker, places: shared("pods", 3), capacities: []int32{n + 2, n + 3},
			workloads: []*workload{
				{name: "soak-pods-instance", device: "pods-0", replicas: 1, max: 1},
				{name: "soak-pods-any", replicas: 1, max: 1},
			},
		},
		{name: "soak-jobs", handler: "debugEcho", broker: jobBroker, places: shared("jobs", 2), capacities: []int32{1, 2}},
		{
			name: "soak-crowd", handler: "debugEcho", places: shared("crowd", 2), capacities: []int32{2},
			workloads: []*workload{{name: "soak-crowd-any", replicas: 5, max: 6}},
		},
		{name: "soak-local", handler: localHandler, broker: podBroker, places: local(nodes, 2), capacities: []int32{1, 2}},
		{
			name: "soak-http", handler: "http", places: shared("http", httpDevices), capacities: []int32{1, 2},
			workloads: []*workload{{name: "soak-http-any", replicas: 1, max: 2}},
		},
	}}
	for _, c := range m.configurations {
		c.present, c.capacity = map[place]int{}, c.capacities[0]
		for _, p := range c.places {
			c.present[p] = 0
		}
	}
	return m
}

func shared(prefix string, count int) (places []place) {
	for i := range count {
		places = append(places, place{device: fmt.Sprintf("%s-%d", prefix, i)})
	}
	return places
}

func local(nodes []string, count int) (places []place) {
	for _, node := range nodes {
		for i := range count {
			places = append(places, place{node, fmt.Sprintf("local-%d", i)})
		}
	}
	return places
}

// capacityOf returns the highest capacity of a Configuration. While it is lowered, slots above the
// capacity are in use.
func (m *model) capacityOf(name string) int32 {
	for _, c := range m.configurations {
		if c.name == name {
			return slices.Max(c.capacities)
		}
	}
	return 0
}
