// Package namespaces publishes which namespaces may use the devices of Configurations. The API
// server enforces it with the ValidatingAdmissionPolicy of the chart, whose parameters are a
// ConfigMap: parameters in all namespaces, such as Configurations, are not possible.
package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
)

const (
	requestTimeout = 10 * time.Second
	initialBackoff = 500 * time.Millisecond
	maxBackoff     = 30 * time.Second
	backoffFactor  = 2
	backoffJitter  = 0.2
	backoffSteps   = 10
)

// Options of a Publisher.
type Options struct {
	// Namespace and Name of the ConfigMap. The chart creates it.
	Namespace, Name string
	Configurations  *kube.Informer[*akriv0.Configuration]
	Log             *zap.Logger
	OnWrite         func(kind, verb string, err error)
}

// Publisher keeps the ConfigMap up to date.
type Publisher struct {
	Options
	client    *kube.Client[*corev1.ConfigMap, *corev1.ConfigMapList]
	configMap *kube.Informer[*corev1.ConfigMap]
	changed   broadcast.Signal
}

// New returns a Publisher. It starts nothing.
func New(config *rest.Config, options Options) (*Publisher, error) {
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	client, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](config, resource, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		Options: options, client: client, configMap: kube.NewNamedInformer(client, options.Namespace, options.Name),
		changed: broadcast.NewSignal(),
	}
	p.configMap.OnChange(func(string) { p.changed.Notify() })
	p.Configurations.OnChange(func(string) { p.changed.Notify() })
	return p, nil
}

// Run publishes until ctx ends. The Configurations must be synced.
func (p *Publisher) Run(ctx context.Context) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.configMap.RunWithContext(ctx)
	}()
	defer func() { <-stopped }()
	if kube.WaitForSync(ctx, p.configMap) != nil {
		return // ctx ended
	}
	initial := wait.Backoff{
		Duration: initialBackoff, Factor: backoffFactor, Jitter: backoffJitter, Steps: backoffSteps, Cap: maxBackoff,
	}
	backoff := initial
	for {
		var retry <-chan time.Time
		if err := p.publish(ctx); err != nil && ctx.Err() == nil {
			after := backoff.Step()
			p.Log.Error("publishing the allowed namespaces of Configurations failed", zap.Error(err), zap.Duration("retry_in", after))
			retry = time.After(after)
		} else {
			backoff = initial
		}
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		case <-retry:
		}
	}
}

func (p *Publisher) publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	current, ok := p.configMap.Get(p.Namespace + "/" + p.Name)
	if !ok {
		return fmt.Errorf("ConfigMap %q does not exist; install it with the Helm chart", p.Name)
	}
	data := Allowed(p.Configurations.List())
	if maps.Equal(current.Data, data) {
		return nil
	}
	update := current.DeepCopy()
	update.Data = data
	_, err := p.client.In(p.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	p.OnWrite("ConfigMap", "update", err)
	if apierrors.IsConflict(err) {
		return nil // the change triggers the next update
	}
	if err != nil {
		return fmt.Errorf("update ConfigMap: %w", err)
	}
	return nil
}

// Allowed returns the namespaces, separated by spaces, for the Configurations that have
// allowedNamespaces. The keys are the prefixes of the names of their Instances. Of Configurations
// whose names conflict, only the oldest has devices and counts.
func Allowed(configurations []*akriv0.Configuration) map[string]string {
	slices.SortFunc(configurations, func(a, b *akriv0.Configuration) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	data := map[string]string{}
	prefixes, ofNames := map[string]bool{}, map[string]bool{}
	for _, c := range configurations {
		prefix, ofName := akriv0.InstanceName(c.Name, ""), akriv0.InstancePrefix(c.Name)
		if prefixes[prefix] || prefixes[ofName] || ofNames[prefix] {
			continue
		}
		prefixes[prefix] = true
		if ofName != "" {
			ofNames[ofName] = true
		}
		if len(c.Spec.AllowedNamespaces) > 0 {
			allowed := slices.Sorted(slices.Values(append([]string{c.Namespace}, c.Spec.AllowedNamespaces...)))
			data[prefix] = strings.Join(slices.Compact(allowed), " ")
		}
	}
	return data
}
