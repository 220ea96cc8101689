// Package resources reads how Pods get devices if the cluster decides it.
package resources

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
)

// Record is the ConfigMap with the decision, which the Helm chart creates without data.
type Record struct {
	*kube.Named[*corev1.ConfigMap]

	// Changed is set when the ConfigMap changes.
	Changed broadcast.Signal

	last atomic.Pointer[string]
}

// NewRecord returns the Record of a namespace. It starts nothing.
func NewRecord(config *rest.Config, namespace string) (*Record, error) {
	client, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](
		config, corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		return nil, err
	}
	changed := broadcast.NewSignal()
	name := cache.NewObjectName(namespace, akriv0.ResourcesConfigMap)
	return &Record{Named: kube.NewNamed(client, "ConfigMap", name, changed), Changed: changed}, nil
}

// Resources returns the decision, or nothing if there is none. If the ConfigMap is deleted, the
// decision stays: otherwise nodes would stop offering devices.
func (r *Record) Resources() string {
	if configMap, err := r.Current(); err == nil {
		if decided := configMap.Data[akriv0.ResourcesKey]; decided != "" {
			r.last.Store(&decided)
		}
	}
	if last := r.last.Load(); last != nil {
		return *last
	}
	return ""
}
