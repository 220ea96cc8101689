package coordinator

import (
	"cmp"
	"strings"

	configurationv1 "akri.sh/proto/akri/configuration/v1"
	"akri.sh/services/discovery-operator/internal/configurations"
)

// related returns the key and the keys of the Configurations that compete with it for a name.
func (c *Coordinator) related(key string) []string {
	keys := []string{key}
	_, name, _ := strings.Cut(key, "/")
	for _, other := range c.Configurations.WithNameOf(name) {
		if otherKey := configurations.Key(other); otherKey != key {
			keys = append(keys, otherKey)
		}
	}
	return keys
}

// owner returns the oldest of the Configurations that compete for a name.
func (c *Coordinator) owner(configuration *configurationv1.Configuration) *configurationv1.Configuration {
	owner := configuration
	for _, other := range c.Configurations.WithNameOf(configuration.GetName()) {
		if older(other, owner) {
			owner = other
		}
	}
	return owner
}

func older(a, b *configurationv1.Configuration) bool {
	return cmp.Or(
		a.GetCreated().AsTime().Compare(b.GetCreated().AsTime()),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	) < 0
}
