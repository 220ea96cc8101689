package v0

import (
	"cmp"
	"slices"
	"strings"
)

// NamesConfigMap records which namespace has a name of Configurations. The keys are the names,
// with `-` for `.`, and the values are the namespaces. instance-writer adds entries, and only
// administrators change or remove them.
const NamesConfigMap = "akri-names"

// NameKey returns the key of a Configuration in NamesConfigMap.
func NameKey(configuration string) string {
	return strings.TrimSuffix(InstanceName(configuration, ""), "-")
}

// Owners returns the Configurations that have their names, the oldest first. Names of extended
// resources have no namespace: of Configurations whose names conflict, only one has devices. A
// recorded name belongs to its namespace, even if the namespace has no Configuration of that name.
// Otherwise the oldest Configuration has the name.
func Owners(recorded map[string]string, configurations []*Configuration) []*Configuration {
	configurations = slices.SortedFunc(slices.Values(configurations), func(a, b *Configuration) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		)
	})
	reserved, inUse := newNames(), newNames()
	for name, namespace := range recorded {
		reserved.add(name, namespace)
	}

	var owners []*Configuration
	for _, configuration := range configurations {
		if reserved.conflict(configuration.Name, configuration.Namespace) || inUse.conflict(configuration.Name, "") {
			continue
		}
		inUse.add(configuration.Name, configuration.Namespace)
		owners = append(owners, configuration)
	}
	return owners
}

// names has the namespaces of names of Configurations, by the prefix of their Instances' names
// (own), and by the prefix that the name has if it is that of an Instance (like).
type names struct{ own, like map[string][]string }

func newNames() names { return names{map[string][]string{}, map[string][]string{}} }

func (n names) add(name, namespace string) {
	own := InstanceName(name, "")
	n.own[own] = append(n.own[own], namespace)
	if like := InstancePrefix(name); like != "" {
		n.like[like] = append(n.like[like], namespace)
	}
}

// conflict returns whether a name that conflicts with this one belongs to another namespace than
// the given one.
func (n names) conflict(name, namespace string) bool {
	other := func(owner string) bool { return owner != namespace }
	own := InstanceName(name, "")
	return slices.ContainsFunc(n.own[own], other) || slices.ContainsFunc(n.like[own], other) ||
		slices.ContainsFunc(n.own[InstancePrefix(name)], other)
}
