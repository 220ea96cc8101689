// Package inventory validates the devices that Discovery Handlers send and builds the node's list
// of devices.
package inventory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// Snapshot is the inventory of the node.
type Snapshot struct {
	// Ready is false until every Configuration has an Entry.
	Ready   bool
	Entries []*Entry // sorted by key
}

// Entry is the inventory of one Configuration. It is immutable.
type Entry struct {
	Key string // namespace/name of the Configuration
	// Report is the report to the instance-writer without node and revision.
	Report *instancev1.ReportDevicesRequest
	// List is the span of the newest list of an endpoint.
	List Span
}

// Span is the span of a list.
type Span struct {
	Traceparent string // empty if the list is not traced
	Started     time.Time
}

// Source is one endpoint of the handler of a Configuration and its last list.
type Source struct {
	Handler *registrarv1.Handler
	// Answered is true if Devices is a list for the current Configuration.
	Answered bool
	// Silent is true if the handler has sent no list for some time: it has found no device so far.
	Silent   bool
	Devices  []*discoveryv0.Device // validated
	Problems []*instancev1.Problem
	List     Span // of the last list
}

// Input is the state that an Entry is built from.
type Input struct {
	Node          string
	Configuration *configurationv1.Configuration
	Sources       []Source
	// Registered are the names of all handlers of the node. HandlersSynced is false until the
	// registrar has sent them.
	Registered     []string
	HandlersSynced bool
	// Unregistered is how long devices are kept while no handler is registered. It is nil after
	// that.
	Unregistered *grace.Wait
	// Grace is the time that devices are kept while their handler is offline.
	Grace time.Duration
	// Policy decides which brokerProperties are refused.
	Policy Policy
}

// Build returns the Entry of a Configuration.
func Build(input Input) *Entry {
	slices.SortFunc(input.Sources, func(a, b Source) int {
		return cmp.Or(
			cmp.Compare(a.Handler.GetOrder(), b.Handler.GetOrder()),
			cmp.Compare(a.Handler.GetEndpoint(), b.Handler.GetEndpoint()),
		)
	})
	entry := newEntry(input.Configuration, isComplete(input))
	entry.List = newestList(input.Sources)
	entry.Report.Answered = isAnswered(input)
	entry.Report.Devices = devices(input)
	entry.Report.Handlers = handlerStates(input.Sources)
	entry.Report.Problems = problems(input)
	return entry
}

// BuildWithoutDevices returns the Entry of a Configuration that does not have its name, or that
// does not allow the node. The latter is not a problem.
func BuildWithoutDevices(configuration *configurationv1.Configuration) *Entry {
	entry := newEntry(configuration, true)
	entry.Report.Answered = true
	if configuration.GetNameTaken() {
		entry.Report.Problems = []*instancev1.Problem{nameTaken()}
	}
	return entry
}

func newEntry(configuration *configurationv1.Configuration, complete bool) *Entry {
	namespace, name := configuration.GetNamespace(), configuration.GetName()
	return &Entry{
		Key: namespace + "/" + name,
		Report: &instancev1.ReportDevicesRequest{
			Namespace: namespace, Configuration: name,
			ConfigurationUid: configuration.GetUid(), Complete: complete, ConfigurationGeneration: configuration.GetGeneration(),
		},
	}
}

// newestList returns the span of the newest list.
func newestList(sources []Source) Span {
	var newest Span
	for _, source := range sources {
		if source.List.Started.After(newest.Started) {
			newest = source.List
		}
	}
	return newest
}

// isComplete returns whether a device that is not in the list is gone.
func isComplete(input Input) bool {
	return handlersKnown(input) && !slices.ContainsFunc(input.Sources, func(s Source) bool { return !s.Answered })
}

// isAnswered returns whether the status of the Configuration follows the list.
func isAnswered(input Input) bool {
	return handlersKnown(input) && !slices.ContainsFunc(input.Sources, func(s Source) bool { return !s.Answered && !s.Silent })
}

func handlersKnown(input Input) bool {
	return input.HandlersSynced && (len(input.Sources) > 0 || input.Unregistered == nil)
}

// devices returns the devices of all endpoints, by id. Of a device at several endpoints it takes
// that of the endpoint that registered first, so that another endpoint cannot replace what
// containers get.
func devices(input Input) []*discoveryv1.Device {
	byID := map[string]*discoveryv1.Device{}
	for _, source := range input.Sources {
		for _, device := range source.Devices {
			if byID[device.GetId()] == nil {
				byID[device.GetId()] = newDevice(input, device, source.Handler.GetShared())
			}
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *discoveryv1.Device) int { return cmp.Compare(a.GetId(), b.GetId()) })
}

// newDevice returns a device of the handler. brokerProperties replace properties of the handler
// with the same name, unless they are refused.
func newDevice(input Input, found *discoveryv0.Device, shared bool) *discoveryv1.Device {
	digest := akriv0.Digest(found.GetId(), input.Node, shared)
	device := &discoveryv1.Device{
		Instance: akriv0.InstanceName(input.Configuration.GetName(), digest),
		Id:       found.GetId(), Shared: shared, Properties: map[string]string{},
	}
	maps.Copy(device.Properties, found.GetProperties())
	for name, value := range input.Configuration.GetRequest().GetBrokerProperties() {
		if input.Policy.checkProperty(name, value) == nil {
			device.Properties[name] = value
		}
	}
	for _, mount := range found.GetMounts() {
		device.Mounts = append(device.Mounts, &discoveryv0.Mount{
			ContainerPath: mount.GetContainerPath(), HostPath: cmp.Or(mount.GetHostPath(), mount.GetContainerPath()),
			ReadOnly: mount.GetReadOnly(),
		})
	}
	for _, spec := range found.GetDeviceSpecs() {
		device.DeviceNodes = append(device.DeviceNodes, &discoveryv0.DeviceSpec{
			ContainerPath: spec.GetContainerPath(), HostPath: cmp.Or(spec.GetHostPath(), spec.GetContainerPath()),
			Permissions: cmp.Or(spec.GetPermissions(), "rw"),
		})
	}
	return device
}
