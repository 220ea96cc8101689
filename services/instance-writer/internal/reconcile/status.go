package reconcile

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/slots"
	"akri.sh/services/instance-writer/internal/status"
)

// statusEvery is how often the status of one Configuration is written at most.
const statusEvery = time.Second

// pace keeps the writes of one Configuration's status apart; the first comes at once.
type pace struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

func (p *pace) left(key types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return statusEvery - time.Since(p.last[key])
}

func (p *pace) wrote(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[key] = time.Now()
}

func (p *pace) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}

// status writes the status of one Configuration if it is not what it should be.
func (r *Reconciler) status(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	news := r.statusCalm.take(key)
	left, err := r.writeStatus(ctx, key, news)
	if news && (err != nil || left > 0) {
		r.statusCalm.hear(key)
	}
	return left, err
}

func (r *Reconciler) writeStatus(ctx context.Context, key types.NamespacedName, news bool) (time.Duration, error) {
	configuration, err := r.Cluster.Configuration(ctx, key)
	if err != nil {
		return 0, err
	}
	if configuration == nil || configuration.DeletionTimestamp != nil {
		r.pace.forget(key)
		return 0, nil
	}
	desired, err := r.desiredStatus(ctx, configuration)
	if err != nil || equality.Semantic.DeepEqual(configuration.Status, desired) {
		return 0, err
	}
	left := r.pace.left(key)
	if !news {
		left = max(left, r.statusCalm.left(key))
	}
	if left > 0 {
		return left, nil
	}
	updated := configuration.DeepCopy()
	updated.Status = desired
	if err := r.Cluster.UpdateStatus(ctx, updated); err != nil {
		return 0, err
	}
	r.pace.wrote(key)
	if !news {
		r.statusCalm.insist(key)
	}
	r.record(ctx, configuration, desired.Conditions)
	return 0, nil
}

func (r *Reconciler) desiredStatus(ctx context.Context, configuration *akriv0.Configuration) (akriv0.ConfigurationStatus, error) {
	key := types.NamespacedName{Namespace: configuration.Namespace, Name: configuration.Name}
	instances := r.Cluster.InstancesOf(key)
	in := status.Input{Configuration: configuration, Instances: len(instances), Unreadable: unreadable(instances), Now: time.Now()}
	for node, heard := range r.Reports.On(key, configuration.UID) {
		in.Heard = append(in.Heard, entry(node, heard))
	}
	gone, err := r.gone(ctx, in)
	if err != nil {
		return akriv0.ConfigurationStatus{}, err
	}
	in.Gone = func(node string) bool { return gone[node] }
	return status.Desired(in), nil
}

// unreadable is in the order of names, so that replicas say the same.
func unreadable(instances []*akriv0.Instance) []string {
	var said []string
	for _, instance := range instances {
		said = append(said, slots.Unreadable(instance)...)
	}
	slices.Sort(said)
	return said
}

func (r *Reconciler) gone(ctx context.Context, in status.Input) (map[string]bool, error) {
	gone := map[string]bool{}
	for _, report := range in.Heard {
		gone[report.Name] = false
	}
	for _, node := range in.Configuration.Status.Nodes {
		gone[node.Name] = false
	}
	for name := range gone {
		exists, err := r.Cluster.NodeExists(ctx, name)
		if err != nil {
			return nil, err
		}
		gone[name] = !exists
	}
	return gone, nil
}

func entry(node string, heard reports.Heard) status.Report {
	problems := append([]akriv0.Problem(nil), heard.Problems...)
	for _, refusal := range heard.Refusals {
		problems = append(problems, akriv0.Problem{Reason: refusal.Reason, Message: refusal.Message})
	}
	devices := 0
	for _, same := range heard.Devices {
		devices += len(same)
	}
	return status.Report{
		NodeStatus: status.Node(node, devices, heard.Handlers, problems), Complete: heard.Complete, Generation: heard.Generation,
	}
}

// record tells of conditions that became False or True again. An Event that is lost is only a word
// less.
func (r *Reconciler) record(ctx context.Context, configuration *akriv0.Configuration, after []metav1.Condition) {
	for _, condition := range after {
		before := meta.FindStatusCondition(configuration.Status.Conditions, condition.Type)
		kind := corev1.EventTypeWarning
		switch {
		case condition.Type == akriv0.ConditionReady || before != nil && before.Status == condition.Status:
			continue
		case condition.Status == metav1.ConditionTrue && before != nil && before.Status == metav1.ConditionFalse:
			kind = corev1.EventTypeNormal
		case condition.Status != metav1.ConditionFalse:
			continue
		}
		if err := r.Cluster.Record(ctx, configuration, kind, condition.Reason, condition.Type+" is "+string(condition.Status)+": "+condition.Message); err != nil {
			r.Log.Warn("event lost", zap.String("configuration", configuration.Name), zap.Error(err))
		}
	}
}
