// Package names records which namespace has the name of a Configuration, so that a name does not
// move to another namespace when its Configuration is deleted and created again.
package names

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
)

const (
	callTimeout  = 5 * time.Second
	initialDelay = 200 * time.Millisecond
	maxDelay     = 30 * time.Second

	// maxBytes keeps the record below the limit of the API server (1 MiB). maxNamespaceBytes, for
	// about 2,000 names, lets no namespace fill the record. Names beyond belong to the oldest
	// Configuration.
	maxBytes, maxNamespaceBytes = 960 << 10, 128 << 10
)

// Record is the ConfigMap with the names. Any replica adds entries; none removes one.
type Record struct {
	configurations func() []*akriv0.Configuration
	configMap      *kube.Named[*corev1.ConfigMap]
	changed        broadcast.Signal
	log            *zap.Logger
}

// New returns the Record of a namespace. It starts nothing. onChange is called when it changes.
func New(
	config *rest.Config, namespace string, configurations *kube.Informer[*akriv0.Configuration], onChange func(), log *zap.Logger,
) (*Record, error) {
	client, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](
		config, corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		return nil, err
	}
	changed := broadcast.NewSignal()
	configurations.OnChange(func(string) { changed.Notify() })
	configMap := kube.NewNamed(client, "ConfigMap", cache.NewObjectName(namespace, akriv0.NamesConfigMap), changed)
	configMap.OnChange(func(string) { onChange() })
	return &Record{configurations: configurations.List, configMap: configMap, changed: changed, log: log}, nil
}

// Informers are the caches of the Record.
func (r *Record) Informers() kube.Informers { return kube.Informers{r.configMap} }

// Existence returns a metric of the ConfigMap.
func (r *Record) Existence() prometheus.Collector { return r.configMap.Existence() }

// Names returns the namespaces by name. It returns nil if the ConfigMap does not exist.
func (r *Record) Names() map[string]string {
	configMap, err := r.configMap.Current()
	if err != nil {
		return nil
	}
	return configMap.Data
}

// Taken reports whether the name of the Configuration belongs to another namespace or
// Configuration.
func (r *Record) Taken(configuration *akriv0.Configuration) bool {
	return !slices.ContainsFunc(akriv0.Owners(r.Names(), r.configurations()), func(owner *akriv0.Configuration) bool {
		return owner.UID == configuration.UID
	})
}

// Run records names until ctx ends. The caches must run.
func (r *Record) Run(ctx context.Context) {
	kube.Loop{
		Objects: r.Informers(), Changed: r.changed, Reconcile: r.reconcile, Timeout: callTimeout,
		FirstRetry: initialDelay, MaxRetry: maxDelay, Log: r.log.Warn, Failed: "recording the names of Configurations failed",
	}.Run(ctx)
}

func (r *Record) reconcile(ctx context.Context) (time.Duration, error) {
	current, err := r.configMap.Current()
	if err != nil {
		return 0, err
	}
	names := Add(current.Data, akriv0.Owners(current.Data, r.configurations()))
	if len(names) == len(current.Data) {
		return kube.MaxWait, nil
	}
	update := current.DeepCopy()
	update.Data = names
	return kube.MaxWait, r.configMap.Update(ctx, update)
}

// Add returns the recorded names and those of the owners, within the limits.
func Add(recorded map[string]string, owners []*akriv0.Configuration) map[string]string {
	names, bytes, inAll := map[string]string{}, map[string]int{}, 0
	maps.Copy(names, recorded)
	for name, namespace := range names {
		bytes[namespace] += len(name) + len(namespace)
		inAll += len(name) + len(namespace)
	}
	for _, owner := range owners {
		name := akriv0.NameKey(owner.Name)
		size := len(name) + len(owner.Namespace)
		if _, exists := names[name]; exists || bytes[owner.Namespace]+size > maxNamespaceBytes || inAll+size > maxBytes {
			continue
		}
		names[name] = owner.Namespace
		bytes[owner.Namespace] += size
		inAll += size
	}
	return names
}
