// Package inventory turns what handlers say into the node's list of devices. It is pure.
package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// Source is one endpoint that serves a Configuration, and what it said.
type Source struct {
	Handler *registrarv1.Handler
	// Heard: Devices is a list that the handler sent for the Configuration as it is now.
	Heard    bool
	Devices  []*discoveryv0.Device // that Check let through
	Problems []*instancev1.Problem
}

// Facts are all that a View is made of.
type Facts struct {
	Node          string
	Configuration *akriv0.Configuration
	Sources       []Source
	// Registered are the names of all handlers of the node; HandlersKnown: the registrar has been heard.
	Registered    []string
	HandlersKnown bool
	// Early: it is too soon to conclude from the absence of a handler that there is none.
	Early bool
	// Former maps the names of the View before this one to device ids.
	Former map[string]string
}

// View is the node's answer to one Configuration, in both forms in which it is told on. It is never changed.
type View struct {
	// Inventory is for the node.
	Inventory *discoveryv1.ConfigurationDevices
	// Report is for the cluster; node and revision are left to the sender.
	Report *instancev1.ReportDevicesRequest
}

// Build makes the View of a Configuration.
func Build(facts Facts) View {
	slices.SortFunc(facts.Sources, func(a, b Source) int {
		return cmp.Compare(a.Handler.GetEndpoint(), b.Handler.GetEndpoint())
	})
	named, collisions := name(facts, union(facts.Sources))
	view := empty(facts.Configuration, complete(facts))
	for _, instance := range slices.Sorted(maps.Keys(named)) {
		view.add(instance, named[instance], facts.Configuration.Spec.BrokerProperties)
	}
	view.Report.Handlers = handlerStates(facts.Sources)
	view.Report.Problems = append(problems(facts), collisions...)
	return view
}

// Taken is the View of a Configuration whose name an older one of another namespace has: there is no discovery for it.
func Taken(configuration, owner *akriv0.Configuration) View {
	view := empty(configuration, true)
	view.Report.Problems = []*instancev1.Problem{{
		Reason: akriv0.ReasonNameTaken,
		Message: fmt.Sprintf("the older Configuration %s/%s has the same name; resources of the kubelet have no namespace, so choose another name for this one",
			owner.Namespace, owner.Name),
	}}
	return view
}

// Names maps the Instances of a View to device ids; that of no View is empty.
func (v View) Names() map[string]string {
	names := map[string]string{}
	for _, device := range v.Inventory.GetDevices() {
		names[device.GetInstance()] = device.GetId()
	}
	return names
}

func empty(configuration *akriv0.Configuration, complete bool) View {
	return View{
		Inventory: &discoveryv1.ConfigurationDevices{Namespace: configuration.Namespace, Name: configuration.Name, Complete: complete},
		Report: &instancev1.ReportDevicesRequest{
			Namespace: configuration.Namespace, Configuration: configuration.Name,
			ConfigurationUid: string(configuration.UID), Complete: complete, ConfigurationGeneration: configuration.Generation,
		},
	}
}

// complete: what is not in the list is not there. Where no handler is registered that takes some patience: one that is
// slow to come back must not cost its devices.
func complete(facts Facts) bool {
	if !facts.HandlersKnown || (len(facts.Sources) == 0 && facts.Early) {
		return false
	}
	return !slices.ContainsFunc(facts.Sources, func(s Source) bool { return !s.Heard })
}

type found struct {
	*discoveryv0.Device
	shared bool
}

// union takes each id from the first endpoint that has it.
func union(sources []Source) map[string]found {
	all := map[string]found{}
	for _, source := range sources {
		for _, device := range source.Devices {
			if _, known := all[device.GetId()]; !known {
				all[device.GetId()] = found{device, source.Handler.GetShared()}
			}
		}
	}
	return all
}

// name gives each device the name of its Instance. Of two that would have one name, that which had it keeps it,
// otherwise the first by id gets it.
func name(facts Facts, devices map[string]found) (map[string]found, []*instancev1.Problem) {
	named := map[string]found{}
	var problems []*instancev1.Problem
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		device := devices[id]
		digest := akriv0.Digest(id, facts.Node, device.shared)
		instance := akriv0.InstanceName(facts.Configuration.Name, digest)
		other, taken := named[instance]
		if !taken {
			named[instance] = device
			continue
		}
		kept, refused := other.GetId(), id
		if facts.Former[instance] == id {
			kept, refused = id, other.GetId()
			named[instance] = device
		}
		problems = append(problems, &instancev1.Problem{
			Reason:  akriv0.ReasonDigestCollision,
			Message: fmt.Sprintf("device ids %q and %q have the same digest %s: %q is offered, %q is not; change one of the ids", kept, refused, digest, kept, refused),
		})
	}
	return named, problems
}

func (v View) add(instance string, device found, overlay map[string]string) {
	properties := maps.Clone(device.GetProperties())
	if properties == nil {
		properties = map[string]string{}
	}
	maps.Copy(properties, overlay)
	v.Report.Devices = append(v.Report.Devices, &instancev1.Device{
		Instance: instance, Id: device.GetId(), Shared: device.shared, Properties: properties,
	})
	local := &discoveryv1.Device{Instance: instance, Id: device.GetId(), Shared: device.shared, Properties: properties}
	for _, mount := range device.GetMounts() {
		local.Mounts = append(local.Mounts, &discoveryv1.Mount{
			ContainerPath: mount.GetContainerPath(), HostPath: cmp.Or(mount.GetHostPath(), mount.GetContainerPath()), ReadOnly: mount.GetReadOnly(),
		})
	}
	for _, spec := range device.GetDeviceSpecs() {
		local.DeviceNodes = append(local.DeviceNodes, &discoveryv1.DeviceNode{
			ContainerPath: spec.GetContainerPath(), HostPath: cmp.Or(spec.GetHostPath(), spec.GetContainerPath()),
			Permissions: cmp.Or(spec.GetPermissions(), "rwm"),
		})
	}
	v.Inventory.Devices = append(v.Inventory.Devices, local)
}

// StatusName is a handler's status as people see it.
func StatusName(status registrarv1.HandlerStatus) string {
	switch status {
	case registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE:
		return "Active"
	case registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE:
		return "Offline"
	default:
		return "Waiting"
	}
}

func handlerStates(sources []Source) []*instancev1.HandlerState {
	var states []*instancev1.HandlerState
	for _, source := range sources {
		states = append(states, &instancev1.HandlerState{
			Name: source.Handler.GetName(), Endpoint: source.Handler.GetEndpoint(),
			Status: StatusName(source.Handler.GetStatus()), OfflineSince: source.Handler.GetOfflineSince(),
		})
	}
	return states
}

func problems(facts Facts) []*instancev1.Problem {
	var all []*instancev1.Problem
	if facts.HandlersKnown && len(facts.Sources) == 0 {
		all = append(all, notRegistered(facts))
	}
	for _, source := range facts.Sources {
		if source.Handler.GetStatus() == registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE {
			all = append(all, &instancev1.Problem{
				Reason:  akriv0.ReasonHandlerOffline,
				Message: fmt.Sprintf("Discovery Handler %q at %s on node %q cannot be reached", source.Handler.GetName(), source.Handler.GetEndpoint(), facts.Node),
			})
		}
		all = append(all, source.Problems...)
	}
	return all
}

func notRegistered(facts Facts) *instancev1.Problem {
	registered := "none"
	if names := slices.Compact(slices.Sorted(slices.Values(facts.Registered))); len(names) > 0 {
		registered = strings.Join(names, ", ")
	}
	return &instancev1.Problem{
		Reason: akriv0.ReasonHandlerNotRegistered,
		Message: fmt.Sprintf("no Discovery Handler named %q is registered on node %q; registered: %s",
			facts.Configuration.Spec.DiscoveryHandler.Name, facts.Node, registered),
	}
}
