package merge

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Group is the input for all devices of a Configuration with one short name. Almost always that is
// one device. A device whose short name another device has gets a longer digest.
type Group struct {
	// Input of each Instance, with the short name. Current and Eligible are not set.
	Input
	// Instances are the known Instances with the short name or with a longer digest.
	Instances []*akriv0.Instance
}

// Edit makes the Instance with the name what desired returns, and returns the result of the last
// call of desired. If exact, desired gets the current Instance from the API server and not from a
// cache.
type Edit func(name string, exact bool, desired func(current *akriv0.Instance) Outcome) (Outcome, error)

// Reconcile edits the Instances of the group. A device keeps the name that it has. A device without
// a name gets the short name if no device has it. Reconcile returns the devices that are not part
// of an Instance.
func (g Group) Reconcile(edit Edit) ([]Refusal, error) {
	short, err := edit(g.Name, false, g.short)
	if err == nil && len(short.Others) > 0 {
		// The cache may not show that the short name has become free, or is that of another device.
		short, err = edit(g.Name, true, g.short)
	}
	if err != nil {
		return nil, err
	}
	refusals, names := short.Refusals, g.longNames()
	for _, device := range short.Others {
		name := device.longName(g.Configuration.Name)
		if len(name) > akriv0.MaxResourceName {
			refusals = append(refusals, nameTooLong(device, g.Name, name))
			continue
		}
		names.Insert(name)
	}
	var errs []error
	for _, name := range sets.List(names) {
		long, err := edit(name, false, func(current *akriv0.Instance) Outcome { return g.long(name, current, short.Instance) })
		refusals, errs = append(refusals, long.Refusals...), append(errs, err)
		for _, device := range long.Others {
			refusals = append(refusals, sameDigest(device, name))
		}
	}
	return refusals, errors.Join(errs...)
}

// short returns the Instance with the short name. A device keeps a longer name, even if the short
// name is free.
func (g Group) short(current *akriv0.Instance) Outcome {
	in := g.Input
	in.Current = current
	own := identityOf(current)
	in.Eligible = func(device Device) bool { return own.is(device) || !g.hasLongName(device) }
	return Desired(in)
}

// long returns the Instance with a longer name. Two replicas can give both names to one device. The
// Instance with the longer name then loses its nodes.
func (g Group) long(name string, current, short *akriv0.Instance) Outcome {
	in := g.Input
	in.Name, in.Current = name, current
	shortOwn := identityOf(short)
	in.Eligible = func(device Device) bool {
		return device.longName(g.Configuration.Name) == name && !shortOwn.is(device)
	}
	return Desired(in)
}

func (g Group) longNames() sets.Set[string] {
	names := sets.New[string]()
	for _, instance := range g.Instances {
		names.Insert(instance.Name)
	}
	return names.Delete(g.Name)
}

func (g Group) hasLongName(device Device) bool {
	name := device.longName(g.Configuration.Name)
	return slices.ContainsFunc(g.Instances, func(i *akriv0.Instance) bool { return i.Name == name && identityOf(i).is(device) })
}

func (d Device) longName(configuration string) string {
	return akriv0.InstanceName(configuration, akriv0.LongDigest(d.ID, d.Node, d.Shared))
}

func nameTooLong(device Device, short, long string) Refusal {
	const digits = len("-8120fex012345")
	return collision(device, "device id %q: another device has the name %s, and %s is longer than %d characters; "+
		"use a Configuration whose name has at most %d characters",
		device.ID, short, long, akriv0.MaxResourceName, akriv0.MaxResourceName-digits)
}

func sameDigest(device Device, name string) Refusal {
	return collision(device, "device id %q: another device has the same digest and the name %s; "+
		"discover one of the devices with another Configuration", device.ID, name)
}

func collision(device Device, format string, args ...any) Refusal {
	return Refusal{device, akriv0.ReasonDigestCollision, fmt.Sprintf(format, args...)}
}
