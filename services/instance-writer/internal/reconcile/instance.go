package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/merge"
	"akri.sh/services/instance-writer/internal/slots"
)

const (
	// forbiddenRetry is the retry interval after the API server has forbidden a write.
	forbiddenRetry     = 30 * time.Second
	reasonNotPermitted = "NotPermitted"
)

// decision is the outcome of one run of the edit of an Instance.
type decision struct {
	refusals []merge.Refusal
	// correction means that the Instance differs from its desired state without new input.
	correction bool
	// remaining is the time until the correction is allowed.
	remaining time.Duration
	// added and removed are the nodes that the edit adds to the Instance and removes from it.
	added, removed []string
}

// reconcileInstance writes one Instance if it differs from its desired state.
func (r *Reconciler) reconcileInstance(ctx context.Context, key instanceKey) (requeueAfter time.Duration, err error) {
	name := types.NamespacedName{Namespace: key.Configuration.Namespace, Name: key.Name}
	// Before input is called, which then reads all that is marked as new.
	isNew := r.instanceBackoff.takeNew(key)
	input, err := r.input(ctx, key, name)
	if err != nil {
		if isNew {
			r.instanceBackoff.markNew(key)
		}
		return 0, err
	}
	apply := func(current *akriv0.Instance) (*akriv0.Instance, decision, error) {
		desired, result := r.decide(key, input, current, isNew)
		return desired, result, nil
	}
	_, result, err := batch.EditWithValue(ctx, r.Writer, name, false, apply)
	if err != nil && isNew {
		r.instanceBackoff.markNew(key)
	}
	if err == nil && result.correction && result.remaining == 0 {
		r.instanceBackoff.corrections.record(key)
	}
	r.recordDevices(key, result)
	refusals, requeueAfter := result.refusals, result.remaining
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsBadRequest(err):
		refusals = refuseAll(input.Seen, akriv0.ReasonInvalidDevice, err)
	case apierrors.IsForbidden(err):
		// A quota or a terminating namespace: reports must not wait until a user resolves it.
		refusals, requeueAfter = refuseAll(input.Seen, reasonNotPermitted, err), forbiddenRetry
	case err != nil:
		return 0, err
	}
	if r.Reports.SetRefusals(key.Configuration, key.Name, refusals) {
		r.enqueueStatus(key.Configuration)
	}
	return requeueAfter, nil
}

// decide returns the desired Instance, or the current one if a correction is not allowed yet.
func (r *Reconciler) decide(key instanceKey, input merge.Input, current *akriv0.Instance, isNew bool) (*akriv0.Instance, decision) {
	var outcome merge.Outcome
	if current != nil || input.Configuration != nil {
		input.Current = current
		outcome = merge.Desired(input)
	}
	result := decision{
		refusals:   outcome.Refusals,
		correction: !isNew && !equality.Semantic.DeepEqual(current, outcome.Instance),
	}
	if result.correction {
		result.remaining = r.instanceBackoff.remaining(key)
	}
	if result.remaining > 0 {
		return current, result
	}
	result.added, result.removed = changedNodes(current, outcome.Instance)
	return outcome.Instance, result
}

// input collects the input of the merge except the current Instance.
func (r *Reconciler) input(ctx context.Context, key instanceKey, name types.NamespacedName) (merge.Input, error) {
	configuration, err := r.Cluster.Configuration(ctx, key.Configuration)
	if err != nil {
		return merge.Input{}, err
	}
	input := merge.Input{Name: key.Name, Configuration: configuration, Unavailable: map[string]bool{}, NotReady: map[string]bool{}}
	if configuration == nil {
		return input, nil
	}
	input.Seen, input.Absent = r.Reports.Devices(key.Configuration, configuration.UID, key.Name)
	var nodes []string
	if current := r.Cluster.Cached(name); current != nil {
		nodes = append(nodes, current.Spec.Nodes...)
		nodes = append(nodes, slots.Holders(current)...)
	}
	for _, device := range input.Seen {
		nodes = append(nodes, device.Node)
	}
	for _, node := range nodes {
		unavailable, remaining, err := r.Cluster.NodeUnavailable(ctx, node, r.Grace)
		if err != nil {
			return merge.Input{}, err
		}
		input.Unavailable[node], input.NotReady[node] = unavailable, remaining > 0
	}
	return input, nil
}

// refuseAll refuses devices whose Instance the API server has rejected.
func refuseAll(devices []merge.Device, reason string, err error) []merge.Refusal {
	var refusals []merge.Refusal
	for _, device := range devices {
		refusals = append(refusals, merge.Refusal{Device: device, Reason: reason, Message: err.Error()})
	}
	return refusals
}
