package operator

import (
	"cmp"

	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// byResource files Configurations under the name that their Instances begin with: kubelet resources have no namespace, and
// Instance names no dots.
const byResource = "resource"

var indexers = cache.Indexers{byResource: func(object any) ([]string, error) {
	return []string{resourceName(object.(*akriv0.Configuration).Name)}, nil
}}

func resourceName(configuration string) string { return akriv0.InstanceName(configuration, "") }

// trim drops what discovery does not look at: brokers and services are most of a Configuration.
func trim(configuration *akriv0.Configuration) {
	configuration.Annotations, configuration.Labels = nil, nil
	configuration.Status = akriv0.ConfigurationStatus{}
	configuration.Spec.BrokerSpec = nil
	configuration.Spec.InstanceServiceSpec = nil
	configuration.Spec.ConfigurationServiceSpec = nil
}

// related are the keys of the Configurations that compete for the name of one, and of that one itself.
func (c *coordinator) related(key string) []string {
	keys := []string{key}
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return keys
	}
	for _, other := range c.configurations.ByIndex(byResource, resourceName(name)) {
		if otherKey := other.Namespace + "/" + other.Name; otherKey != key {
			keys = append(keys, otherKey)
		}
	}
	return keys
}

// owner is the Configuration that the name belongs to: the oldest.
func (c *coordinator) owner(configuration *akriv0.Configuration) *akriv0.Configuration {
	owner := configuration
	for _, other := range c.configurations.ByIndex(byResource, resourceName(configuration.Name)) {
		if older(other, owner) {
			owner = other
		}
	}
	return owner
}

func older(a, b *akriv0.Configuration) bool {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	) < 0
}
