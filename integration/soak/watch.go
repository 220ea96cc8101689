package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"

	"akri.sh/integration/mesh"
)

const (
	scanInterval = time.Second
	// settledAge is the least age of a container that is compared with a version of an Instance
	// that a watch has shown. A watch can be late by less than that, except after a failure of the
	// API server, for which versions are not compared.
	settledAge, outageAge = 5 * time.Second, 20 * time.Second
	callTimeout           = 5 * time.Second
)

// version is a version of an Instance with fewer slots in use, and when a watch showed it.
type version struct {
	instance *akriv0.Instance
	at       time.Time
}

// watcher checks invariants when a watch shows a change, and each second by the running containers.
type watcher struct {
	*record
	mesh  *mesh.Mesh
	model *model

	// The objects that watches of the API server show.
	instances      *kube.Informer[*akriv0.Instance]
	configurations *kube.Informer[*akriv0.Configuration]
	pods           *kube.Informer[*corev1.Pod]
	nodes          *kube.Informer[*corev1.Node]

	mu       sync.Mutex
	released []version
	users    map[string]user // the containers of the last scan
	restarts map[string]int  // the allowed number, by Pod and container
	forced   map[string]bool // the Pods that were deleted by force, by UID
	outage   time.Time       // the last time at which the API server was down
	scan     broadcast.Signal
}

func newWatcher(m *mesh.Mesh, r *record, desired *model) (*watcher, error) {
	config, err := m.Cluster.RESTConfig()
	if err != nil {
		return nil, err
	}
	pods, err := kube.NewClient[corev1.Pod, corev1.PodList](config, corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		return nil, err
	}
	nodes, err := kube.Nodes(config)
	if err != nil {
		return nil, err
	}
	return &watcher{
		record: r, mesh: m, model: desired, restarts: map[string]int{}, forced: map[string]bool{}, scan: broadcast.NewSignal(),
		instances: kube.NewInformer(m.Instances, nil, nil), configurations: kube.NewInformer(m.Configurations, nil, nil),
		pods: kube.NewInformer(pods, nil, nil), nodes: kube.NewInformer(nodes, nil, nil),
	}, nil
}

// start starts all checks, which end with ctx. It returns when the caches are complete.
func (w *watcher) start(ctx context.Context, background *sync.WaitGroup) error {
	w.instances.OnEvent(w.instanceChanged)
	w.pods.OnEvent(w.podChanged)
	for _, run := range []func(context.Context){
		w.instances.RunWithContext, w.configurations.RunWithContext, w.pods.RunWithContext, w.nodes.RunWithContext, w.scanAll,
	} {
		background.Go(func() { run(ctx) })
	}
	return kube.WaitForSync(ctx, kube.Informers{w.instances, w.configurations, w.pods, w.nodes})
}

func (w *watcher) instanceChanged(before, after *akriv0.Instance) {
	// A watch that was interrupted shows an Instance that was deleted and created as one change.
	deleted := before != nil && (after == nil || before.UID != after.UID)
	switch {
	case deleted && w.model.wants(before.Name):
		w.violated(fmt.Errorf("the Instance %s was deleted while %v see its device", before.Name, before.Spec.Nodes), before, after)
	case deleted:
	default:
		if err := checkChange(before, after); err != nil {
			w.violated(err, before, after)
		}
		if released(before, after) {
			w.mu.Lock()
			w.released = append(w.released, version{after, time.Now()})
			w.mu.Unlock()
			w.scan.Notify()
		}
	}
}

func (w *watcher) podChanged(_, pod *corev1.Pod) {
	if pod == nil {
		return
	}
	if pod.Namespace == mesh.Namespace {
		if err := checkRestarts(pod, w.allowed); err != nil {
			w.violated(err, pod)
		}
		w.counted(pod)
	}
	if instance := pod.Labels[mesh.InstanceLabel]; instance != "" && metav1.GetControllerOf(pod) != nil && metav1.GetControllerOf(pod).Kind == "Instance" {
		if err := checkBrokers(w.pods.List(), instance, w.model.capacityOf(pod.Labels[mesh.ConfigurationLabel])); err != nil {
			w.violated(err, pod)
		}
	}
}

// allow adds a restart of a container that the soak causes.
func (w *watcher) allow(uid, container string, restarts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restarts[uid+"/"+container] += restarts
}

// recordForced records that a Pod is deleted by force. The kubelet forgets the devices of such a
// Pod at once, so that a slot is free while its container still ends.
func (w *watcher) recordForced(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forced[uid] = true
}

// counted allows the restarts that a Pod has, so that the next check is about further ones.
func (w *watcher) counted(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, status := range pod.Status.ContainerStatuses {
		key := string(pod.UID) + "/" + status.Name
		w.restarts[key] = max(w.restarts[key], int(status.RestartCount))
	}
}

func (w *watcher) allowed(uid, container string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts[uid+"/"+container]
}

// apiDown records that the API server does not run.
func (w *watcher) apiDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outage = time.Now()
}

// running returns the containers of the last scan.
func (w *watcher) running() map[string]user {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.users
}

func (w *watcher) lastOutage() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outage
}

// scanAll compares the running containers with the Instances until ctx ends.
func (w *watcher) scanAll(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	for {
		if before, after, ok := w.rescan(); ok {
			w.checkReleased(before, after)
			w.checkStored(ctx, after)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-w.scan:
		}
	}
}

// rescan returns the containers of the previous scan and those that run now.
func (w *watcher) rescan() (before, after map[string]user, ok bool) {
	before = w.running()
	after, err := users(w.mesh.Cluster.Nodes(), before)
	if err != nil {
		w.violated(err)
		return nil, nil, false
	}
	w.mu.Lock()
	w.users = after
	w.mu.Unlock()
	return before, after, true
}

// holders returns the containers of two lists whose devices have slots.
func (w *watcher) holders(before, after map[string]user) map[string]user {
	running := both(before, after)
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(running, func(_ string, u user) bool { return w.forced[u.PodUID] })
	return running
}

// checkReleased compares the versions in which slots were released with the containers that ran
// before and after a watch showed them.
func (w *watcher) checkReleased(before, after map[string]user) {
	outage := w.lastOutage()
	w.mu.Lock()
	versions := w.released
	w.released = nil
	w.mu.Unlock()
	running := w.holders(before, after)
	for _, v := range versions {
		if v.at.Sub(outage) < outageAge || !w.model.wants(v.instance.Name) {
			continue
		}
		settled := map[string]user{}
		for id, u := range running {
			if v.at.Sub(u.since) > settledAge {
				settled[id] = u
			}
		}
		if err := checkSlots(v.instance, settled, w.model.capacityOf(v.instance.Spec.ConfigurationName)); err != nil {
			w.violated(fmt.Errorf("a slot was released: %w", err), v.instance)
		}
	}
}

// checkStored reads the Instances and compares them with the containers that ran before and after.
func (w *watcher) checkStored(ctx context.Context, before map[string]user) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := w.mesh.Instances.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return // the API server is down
	}
	_, after, ok := w.rescan()
	if !ok {
		return
	}
	running := w.holders(before, after)
	for _, instance := range list.Items {
		if !w.model.wants(instance.Name) {
			continue
		}
		if err := checkSlots(&instance, running, w.model.capacityOf(instance.Spec.ConfigurationName)); err != nil {
			w.violated(err, &instance, w.podsOf(running, instance.Name))
		}
	}
}

// podsOf returns the Pods of the containers that use an Instance.
func (w *watcher) podsOf(running map[string]user, instance string) (pods []string) {
	for _, u := range running {
		if slices.Contains(u.instances, instance) {
			name := u.PodUID
			if pod := w.pod(u.PodUID); pod != nil {
				name = pod.Name
			}
			pods = append(pods, fmt.Sprintf("%s on %s, container %s, since %s", name, u.node, u.ID, u.since.UTC().Format(time.RFC3339Nano)))
		}
	}
	return pods
}

// pod returns the Pod with the uid, or nil.
func (w *watcher) pod(uid string) *corev1.Pod {
	for _, pod := range w.pods.List() {
		if string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}
