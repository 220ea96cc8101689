package slots

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/services/device-plugin-host/internal/node"
	"akri.sh/services/device-plugin-host/internal/trouble"
)

const (
	period      = time.Second
	listTimeout = 2 * time.Second
	// urgent is the least pause between rounds.
	urgent = 100 * time.Millisecond
	// rewrite is how often the kubelet is made to write its file while that decides on a slot.
	rewrite = 5 * time.Second
)

// Reclaimer asks the kubelet which devices its pods have, releases the slots that none has any more, and takes back those
// that one has and that are recorded as free.
//
// An answer counts only when the kubelet knows its own pods again: after it starts it lists none until the API server
// has told it of them. Such an answer lists our own pod, or, when we do not know that, any pod.
type Reclaimer struct {
	Keeper  *Keeper
	Kubelet podresourcesv1.PodResourcesListerClient
	Store   *node.Store
	// Pod is our own.
	Pod node.Key
	Log *zap.Logger
	// Done is told what each round did.
	Done func(Outcome)
	// Checkpoint reads the devices that the kubelet noted in its file as given to pods. Those of init containers are
	// there, and those of pods that ended since the file was written. Rewrite makes the kubelet write it anew.
	Checkpoint func() (map[string]map[string]bool, error)
	Rewrite    func()

	rewritten time.Time
	trouble   trouble.Trouble
}

// Run works until ctx ends. While this node holds no slot, and nothing looks as if it should, it asks nobody anything.
func (r *Reclaimer) Run(ctx context.Context) error {
	for {
		view, changed := r.Store.Get()
		if len(view.Held()) == 0 && !r.Keeper.tracker.Suspect(time.Now(), view) {
			r.noteRound(nil)
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				continue
			}
		}
		wait := period
		soon, err := r.round(ctx)
		if err != nil {
			r.Log.Debug("reclaim round", zap.Error(err), zap.Duration("retry_in", wait))
		}
		r.noteRound(err)
		if soon {
			wait = confirm
		}
		if !r.pause(ctx, wait, err != nil) {
			return nil
		}
	}
}

// pause waits for the next round, which comes early when a change makes it urgent. It returns false when ctx ended.
func (r *Reclaimer) pause(ctx context.Context, wait time.Duration, failed bool) bool {
	due, early := time.After(wait), time.After(urgent)
	for {
		view, changed := r.Store.Get()
		if early == nil && !failed && r.Keeper.tracker.Suspect(time.Now(), view) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-early:
			early = nil
		case <-changed:
		}
	}
}

func (r *Reclaimer) noteRound(err error) {
	r.trouble.Note(r.Log, "cannot make the slots that are held those that pods use: some may stay reserved", err)
}

func (r *Reclaimer) round(ctx context.Context) (soon bool, err error) {
	r.Log.Debug("reclaiming unused slots - start")
	asked := time.Now()
	used, err := r.list(ctx)
	if err != nil {
		r.Keeper.Forget()
		return false, err
	}
	done, soon, err := r.Keeper.settle(ctx, asked, used, r.unused)
	r.Done(done)
	return soon, err
}

// unused are those of the slots that the kubelet's file does not list. What it lists may be out of date, so the kubelet
// is made to write it anew: later rounds look again.
func (r *Reclaimer) unused(doubtful []node.Claim) []node.Claim {
	if len(doubtful) == 0 {
		return nil
	}
	noted, err := r.Checkpoint()
	if err != nil {
		r.Log.Warn("slots that no pod was seen to use stay held", zap.String("slot", names(doubtful)), zap.Error(err))
	}
	var unused []node.Claim
	if err == nil {
		unused = slices.DeleteFunc(slices.Clone(doubtful), Use(noted).Has)
	}
	if len(unused) < len(doubtful) && time.Since(r.rewritten) >= rewrite {
		r.rewritten = time.Now()
		r.Rewrite()
	}
	return unused
}

func (r *Reclaimer) list(ctx context.Context) (Use, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := r.Kubelet.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pod resources: %w", err)
	}
	if !r.trusted(response.GetPodResources()) {
		return nil, fmt.Errorf("the kubelet does not know its pods yet: it lists %d", len(response.GetPodResources()))
	}
	return useOf(response.GetPodResources()), nil
}

func (r *Reclaimer) trusted(pods []*podresourcesv1.PodResources) bool {
	for _, pod := range pods {
		if r.Pod == (node.Key{}) || r.Pod == (node.Key{Namespace: pod.GetNamespace(), Name: pod.GetName()}) {
			return true
		}
	}
	return false
}

func useOf(pods []*podresourcesv1.PodResources) Use {
	use := Use{}
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, devices := range container.GetDevices() {
				ids := use[devices.GetResourceName()]
				if ids == nil {
					ids = map[string]bool{}
					use[devices.GetResourceName()] = ids
				}
				for _, id := range devices.GetDeviceIds() {
					ids[id] = true
				}
			}
		}
	}
	return use
}
