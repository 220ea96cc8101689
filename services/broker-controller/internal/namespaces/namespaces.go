// Package namespaces writes which namespaces may use the devices of Configurations into the
// ValidatingAdmissionPolicies of the chart, which the API server enforces. They have no parameters:
// Configurations of all namespaces cannot be parameters, and the API server stops watching
// ConfigMaps when the last policy with one is deleted.
package namespaces

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
)

const (
	requestTimeout = 10 * time.Second
	initialBackoff = 500 * time.Millisecond
	maxBackoff     = 30 * time.Second
	// maxBytes limits the names in a policy: the API server stores objects of 1.5 MiB.
	maxBytes = 1 << 20
	// entryBytes is what an entry takes besides its names.
	entryBytes = 8
)

// Publisher keeps the policy up to date.
type Publisher struct {
	configurations *kube.Informer[*akriv0.Configuration]
	log            *zap.Logger
	onWrite        func(kind, verb string, err error)
	policy         *kube.Named[*admissionv1.ValidatingAdmissionPolicy]
	names          *kube.Named[*corev1.ConfigMap]
	rules          rules
	changed        broadcast.Signal
}

// New returns a Publisher for the policy Pods or Claims, which the chart creates. The namespace is
// that of the recorded names. It starts nothing.
func New(
	config *rest.Config, policy, namespace string, configurations *kube.Informer[*akriv0.Configuration],
	log *zap.Logger, onWrite func(kind, verb string, err error),
) (*Publisher, error) {
	rules, ok := rulesOf[policy]
	if !ok {
		return nil, fmt.Errorf("policy %q is unknown; the policies are %q and %q", policy, Pods, Claims)
	}
	resource := admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	client, err := kube.NewClient[admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyList](
		config, resource)
	if err != nil {
		return nil, err
	}
	configMaps, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](
		config, corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		return nil, err
	}
	changed := broadcast.NewSignal()
	configurations.OnChange(func(string) { changed.Notify() })
	return &Publisher{
		configurations: configurations, log: log, onWrite: onWrite, rules: rules, changed: changed,
		policy: kube.NewNamed(client, "ValidatingAdmissionPolicy", cache.NewObjectName("", policy), changed),
		names:  kube.NewNamed(configMaps, "ConfigMap", cache.NewObjectName(namespace, akriv0.NamesConfigMap), changed),
	}, nil
}

// Existence returns a metric of the policy.
func (p *Publisher) Existence() prometheus.Collector { return p.policy.Existence() }

// Watch watches the policy and the recorded names until ctx ends.
func (p *Publisher) Watch(ctx context.Context) { kube.Informers{p.policy, p.names}.Run(ctx) }

// Lead publishes until ctx ends. Watch must run, and the Configurations must be synced.
func (p *Publisher) Lead(ctx context.Context) {
	kube.Loop{
		Objects: kube.Informers{p.policy, p.names}, Changed: p.changed, Reconcile: p.publish, Timeout: requestTimeout,
		FirstRetry: initialBackoff, MaxRetry: maxBackoff,
		Log: p.log.Error, Failed: "publishing the allowed namespaces of Configurations failed",
	}.Run(ctx)
}

func (p *Publisher) publish(ctx context.Context) (time.Duration, error) {
	current, err := p.policy.Current()
	if err != nil {
		return 0, err
	}
	var names map[string]string
	if record, err := p.names.Current(); err == nil { // without it, the oldest Configuration has a name
		names = record.Data
	}
	allowed, cut := Allowed(names, p.configurations.List())
	variables, validations := p.rules.with(allowed)
	if equality.Semantic.DeepEqual(current.Spec.Variables, variables) && equality.Semantic.DeepEqual(current.Spec.Validations, validations) {
		return kube.MaxWait, nil
	}
	update := current.DeepCopy()
	update.Spec.Variables, update.Spec.Validations = variables, validations
	err = p.policy.Update(ctx, update)
	p.onWrite("ValidatingAdmissionPolicy", "update", err)
	if len(cut) > 0 {
		p.log.Error("the policy is too long for all allowedNamespaces of the namespace of this Configuration and others",
			zap.String("configuration", cut[0]), zap.Int("configurations", len(cut)))
	}
	return kube.MaxWait, err
}

// Allowed returns the namespaces, separated by spaces, for the Configurations that have
// allowedNamespaces. The keys are the prefixes of the names of their Instances. Of Configurations
// whose names conflict, only the one that has its name has devices and counts.
//
// The authors of one namespace cannot fill the policy. A Configuration for which its namespace has
// no bytes left has only its own namespace, and none if that does not fit either. cut has their
// names.
func Allowed(names map[string]string, configurations []*akriv0.Configuration) (data map[string]string, cut []string) {
	data = map[string]string{}
	bytes := shares{free: maxBytes, byNamespace: map[string]int{}}
	for _, c := range akriv0.Owners(names, configurations) {
		if len(c.Spec.AllowedNamespaces) == 0 {
			continue
		}
		prefix := akriv0.InstanceName(c.Name, "")
		allowed := slices.Sorted(slices.Values(append([]string{c.Namespace}, c.Spec.AllowedNamespaces...)))
		text := strings.Join(slices.Compact(allowed), " ")

		if !bytes.take(c.Namespace, entryBytes+len(prefix)+len(text), 2) {
			cut = append(cut, c.Namespace+"/"+c.Name)
			if text = c.Namespace; !bytes.take(c.Namespace, entryBytes+len(prefix)+len(text), 1) {
				continue
			}
		}
		data[prefix] = text
	}
	return data, cut
}

// shares are the bytes of the namespaces. However much the others have taken, a namespace gets a
// part of what is left.
type shares struct {
	free        int
	byNamespace map[string]int
}

// take returns false if the namespace would then have more than what is free, divided by reserve.
func (s *shares) take(namespace string, bytes, reserve int) bool {
	if reserve*(s.byNamespace[namespace]+bytes) > s.free-bytes {
		return false
	}
	s.free -= bytes
	s.byNamespace[namespace] += bytes
	return true
}
