package merge

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// GroupInput is the input for all devices of a Configuration with one short name. Almost always
// that is one device. A device keeps the name that it has. A device without a name gets the short
// name if no device has it, and otherwise a name with a longer digest.
type GroupInput struct {
	// Input of each Instance, with the short name. Current is not set.
	Input
	// Instances are the known Instances with the short name or with a longer one.
	Instances []*akriv0.Instance
	// Short is the Instance with the short name after it was written. It is written first, because
	// the longer names depend on it.
	Short *akriv0.Instance
}

// Desired returns the desired Instance with the name: the short name or one of LongNames.
func (g GroupInput) Desired(name string, current *akriv0.Instance) Outcome {
	in := g.Input
	in.Name, in.Current = name, current
	if name == g.Name {
		own := identityOf(current)
		in.eligible = func(device Device) bool { return own.is(device) || !g.hasLongName(device) }
		return Desired(in)
	}
	// Two replicas can give both names to one device. The longer one then loses its nodes.
	short := identityOf(g.Short)
	in.eligible = func(device Device) bool { return g.longName(device) == name && !short.is(device) }
	outcome := Desired(in)
	for _, device := range outcome.Others {
		outcome.Refusals = append(outcome.Refusals, sameDigest(device, name))
	}
	return outcome
}

// LongNames returns the longer names of the known Instances and of the devices that the Instance
// with the short name does not represent. It refuses devices whose longer name is too long.
func (g GroupInput) LongNames(others []Device) (names []string, refusals []Refusal) {
	distinct := sets.New[string]()
	for _, instance := range g.Instances {
		distinct.Insert(instance.Name)
	}
	distinct.Delete(g.Name)
	for _, device := range others {
		name := g.longName(device)
		if len(name) > akriv0.MaxResourceName {
			refusals = append(refusals, nameTooLong(device, g.Name, name))
			continue
		}
		distinct.Insert(name)
	}
	return sets.List(distinct), refusals
}

func (g GroupInput) hasLongName(device Device) bool {
	name := g.longName(device)
	return slices.ContainsFunc(g.Instances, func(i *akriv0.Instance) bool { return i.Name == name && identityOf(i).is(device) })
}

func (g GroupInput) longName(d Device) string {
	return akriv0.InstanceName(g.Configuration.Name, akriv0.LongDigest(d.ID, d.Node, d.Shared))
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
