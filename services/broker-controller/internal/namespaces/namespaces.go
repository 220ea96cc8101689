// Package namespaces writes which namespaces may use the devices of Configurations into the
// ValidatingAdmissionPolicies of the chart, which the API server enforces. They have no parameters:
// Configurations of all namespaces cannot be parameters, and the API server stops watching
// ConfigMaps when the last policy with one is deleted.
package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
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
)

// Publisher keeps the policy up to date.
type Publisher struct {
	configurations *kube.Informer[*akriv0.Configuration]
	log            *zap.Logger
	onWrite        func(kind, verb string, err error)
	policy         *kube.Named[*admissionv1.ValidatingAdmissionPolicy]
	rules          rules
	changed        broadcast.Signal
}

// New returns a Publisher for the policy Pods or Claims, which the chart creates. It starts
// nothing.
func New(
	config *rest.Config, policy string, configurations *kube.Informer[*akriv0.Configuration],
	log *zap.Logger, onWrite func(kind, verb string, err error),
) (*Publisher, error) {
	rules, ok := rulesOf[policy]
	if !ok {
		return nil, fmt.Errorf("policy %q is unknown; the policies are %q and %q", policy, Pods, Claims)
	}
	resource := admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	client, err := kube.NewClient[admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyList](
		config, resource, admissionv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	changed := broadcast.NewSignal()
	configurations.OnChange(func(string) { changed.Notify() })
	return &Publisher{
		configurations: configurations, log: log, onWrite: onWrite, rules: rules, changed: changed,
		policy: kube.NewNamed(client, "ValidatingAdmissionPolicy", cache.NewObjectName("", policy), changed),
	}, nil
}

// Watch watches the policy until ctx ends.
func (p *Publisher) Watch(ctx context.Context) { p.policy.RunWithContext(ctx) }

// Lead publishes until ctx ends. Watch must run, and the Configurations must be synced.
func (p *Publisher) Lead(ctx context.Context) {
	kube.Loop{
		Objects: kube.Informers{p.policy}, Changed: p.changed, Reconcile: p.publish, Timeout: requestTimeout,
		FirstRetry: initialBackoff, MaxRetry: maxBackoff,
		Log: p.log.Error, Failed: "publishing the allowed namespaces of Configurations failed",
	}.Run(ctx)
}

func (p *Publisher) publish(ctx context.Context) (time.Duration, error) {
	current, err := p.policy.Current()
	if err != nil {
		return 0, err
	}
	variables, validations := p.rules.with(Allowed(p.configurations.List()))
	if equality.Semantic.DeepEqual(current.Spec.Variables, variables) && equality.Semantic.DeepEqual(current.Spec.Validations, validations) {
		return kube.MaxWait, nil
	}
	update := current.DeepCopy()
	update.Spec.Variables, update.Spec.Validations = variables, validations
	err = p.policy.Update(ctx, update)
	p.onWrite("ValidatingAdmissionPolicy", "update", err)
	return kube.MaxWait, err
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
