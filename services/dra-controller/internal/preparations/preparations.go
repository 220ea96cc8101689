// Package preparations makes kubelets repeat preparations of claims that failed while the plugin of
// their node was not there. A kubelet repeats such a preparation only after 60 to 90 s, but syncs a
// Pod at once if an annotation of it changes. There is no state: the annotation has the time of the
// return of the plugin for which the Pod was synced. A stale cache is harmless, because the same
// value is then written again.
package preparations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"akri.sh/libs/kube"
)

// policy is the ValidatingAdmissionPolicy of the chart that refuses dra-controller every change of
// a Pod but that of the annotation.
const policy = "akri-dra-controller-pods"

const (
	workers      = 4
	writeTimeout = 10 * time.Second
	minRetry     = 50 * time.Millisecond
	maxRetry     = 30 * time.Second
)

// errUnrestricted is the error of a write that is not done.
var errUnrestricted = errors.New(
	"the ValidatingAdmissionPolicy " + policy + " of the chart does not refuse other changes of Pods: create it and its binding again with helm upgrade")

// Options of Run.
type Options struct {
	// Cache is not running.
	Cache *Cache
	// Claims have only the devices of Akri that are allocated to them. They run elsewhere.
	Claims *kube.Informer[*resourcev1.ResourceClaim]
	Log    *zap.Logger
	// OnWrite is called after each write to the API server.
	OnWrite func(kind, verb string, err error)
}

type controller struct {
	Options
	// queue has the keys of waiting Pods.
	queue workqueue.TypedRateLimitingInterface[string]
}

// Run reconciles until ctx ends. It also runs the cache.
func Run(ctx context.Context, options Options) {
	c := &controller{
		Options: options,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry)),
	}
	c.subscribe()

	informers := kube.Informers{c.Cache.waiting, c.Cache.plugins}
	var group sync.WaitGroup
	group.Go(func() { informers.Run(ctx) })
	defer group.Wait()
	if kube.WaitForSync(ctx, informers) != nil {
		return // ctx ended
	}
	kube.Work(ctx, c.queue, workers, c.reconcileOnce)
}

// subscribe fills the queue. The handlers stay, because the caches stop with the controller.
func (c *controller) subscribe() {
	c.Cache.waiting.OnChange(c.queue.Add)
	c.Cache.plugins.OnEvent(func(_, plugin *corev1.Pod) {
		if plugin != nil {
			c.add(c.Cache.waiting.ByIndex(byNode, plugin.Spec.NodeName))
		}
	})
	c.Claims.OnEvent(func(_, claim *resourcev1.ResourceClaim) {
		if claim != nil {
			c.add(c.Cache.waiting.ByIndex(byClaim, claim.Namespace+"/"+claim.Name))
		}
	})
}

func (c *controller) add(pods []*corev1.Pod) {
	for _, pod := range pods {
		c.queue.Add(pod.Namespace + "/" + pod.Name)
	}
}

func (c *controller) reconcileOnce(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := c.reconcile(ctx, key)
	if err == nil || apierrors.IsNotFound(err) { // the Pod was deleted
		c.queue.Forget(key)
		return
	}
	level := zap.WarnLevel
	if apierrors.IsConflict(err) || ctx.Err() != nil {
		level = zap.DebugLevel // the cache is older than the Pod
	}
	c.Log.Log(level, "making the kubelet sync a Pod failed, retrying", zap.String("pod", key), zap.Error(err))
	c.queue.AddRateLimited(key)
}

func (c *controller) reconcile(ctx context.Context, key string) error {
	pod, exists := c.Cache.waiting.Get(key)
	if !exists || !c.hasDevice(pod) {
		return nil
	}
	returned, due := Due(pod, c.Cache.plugins.ByIndex(byNode, pod.Spec.NodeName))
	if !due {
		return nil
	}

	if err := c.requirePolicy(ctx, pod); err != nil {
		return err
	}
	err := c.patch(ctx, pod, metav1.ObjectMeta{Annotations: map[string]string{Annotation: returned}}, metav1.PatchOptions{})
	c.OnWrite("Pod", "patch", err)
	if err == nil {
		c.Log.Info("the plugin of a node has returned, so its kubelet syncs a Pod that waits for devices",
			zap.String("pod", key), zap.String("node", pod.Spec.NodeName))
	}
	return err
}

// hasDevice reports whether a device of Akri is allocated to a claim of the Pod.
func (c *controller) hasDevice(pod *corev1.Pod) bool {
	for _, key := range claimsOf(pod) {
		if claim, exists := c.Claims.Get(key); exists && claim.Status.Allocation != nil {
			return true
		}
	}
	return false
}

// requirePolicy fails unless the policy refuses a change of another field of the Pod, in a dry run.
// dra-controller does not use a right that nothing restricts.
func (c *controller) requirePolicy(ctx context.Context, pod *corev1.Pod) error {
	err := c.patch(ctx, pod, metav1.ObjectMeta{Labels: map[string]string{Annotation: "refused"}}, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return errUnrestricted
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'"):
		return nil
	default:
		return fmt.Errorf("read in a dry run whether %s exists: %w", policy, err)
	}
}

// patch changes metadata of the Pod. It fails with a conflict if another Pod has the name by now.
func (c *controller) patch(ctx context.Context, pod *corev1.Pod, changed metav1.ObjectMeta, options metav1.PatchOptions) error {
	changed.UID = pod.UID
	patch, err := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: changed})
	if err != nil {
		return err
	}
	_, err = c.Cache.client.In(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, options)
	return err
}
