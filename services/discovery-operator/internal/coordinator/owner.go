package coordinator

import (
	"cmp"

	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// byInstancePrefix indexes Configurations by the prefix of their Instances' names. Extended
// resources have no namespace, so two Configurations with one prefix compete for names.
const byInstancePrefix = "instancePrefix"

var indexers = cache.Indexers{byInstancePrefix: func(object any) ([]string, error) {
	return []string{instancePrefix(object.(*akriv0.Configuration).Name)}, nil
}}

func instancePrefix(configuration string) string { return akriv0.InstanceName(configuration, "") }

// trim drops the fields that discovery does not use. They are the largest part of a Configuration.
func trim(configuration *akriv0.Configuration) {
	configuration.Annotations, configuration.Labels = nil, nil
	configuration.Status = akriv0.ConfigurationStatus{}
	configuration.Spec.BrokerSpec = nil
	configuration.Spec.InstanceServiceSpec = nil
	configuration.Spec.ConfigurationServiceSpec = nil
}

// related returns the key and the keys of the Configurations that compete with it for a name.
func (c *Coordinator) related(key string) []string {
	keys := []string{key}
	_, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return keys
	}
	for _, other := range c.configurations.ByIndex(byInstancePrefix, instancePrefix(name)) {
		if otherKey := other.Namespace + "/" + other.Name; otherKey != key {
			keys = append(keys, otherKey)
		}
	}
	return keys
}

// owner returns the oldest of the Configurations that compete for a name.
func (c *Coordinator) owner(configuration *akriv0.Configuration) *akriv0.Configuration {
	owner := configuration
	for _, other := range c.configurations.ByIndex(byInstancePrefix, instancePrefix(configuration.Name)) {
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
