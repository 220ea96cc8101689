package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"akri.sh/integration/mesh"
)

const (
	failuresFor = 100 * time.Second
	seeds       = 3
	wantedPods  = 6

	failuresConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-failures, namespace: default}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: ["foo0"]'}
  capacity: 6
`
)

var failuresObjects = failuresConfiguration +
	deployment("bench-failures", wantedPods, "", `resources: {limits: {"akri.sh/bench-failures": "1"}}`)

// form is a way in which Pods get devices, and the service that gives them to the kubelet.
type form struct {
	name, value, service string
	// retries is set if dra-controller makes kubelets repeat preparations that failed.
	retries bool
}

var (
	plugins  = form{"device plugins", "devicePlugin", "device-plugin-host", false}
	dynamic  = form{"DRA", "dra", "dra-kubelet-plugin", false}
	retrying = form{"DRA with `dra-controller.retryPreparations=true`", "dra", "dra-kubelet-plugin", true}
	forms    = []form{plugins, dynamic}
)

// values returns those of the chart.
func (f form) values() []string {
	return []string{"global.resources=" + f.value, fmt.Sprintf("dra-controller.retryPreparations=%t", f.retries)}
}

// failures deletes Pods and services at random, with each form and seed, and prints how many Pods
// the kubelets refused and when all Pods ran again after the last failure.
func (b *bench) failures(ctx context.Context) error {
	fmt.Fprintf(b.Out, "\n| %s of random failures, median of %d seeds (all) | Pods refused | last failure → all %d Pods run |\n|---|---|---|\n",
		failuresFor, seeds, wantedPods)
	for _, form := range append(forms, retrying) {
		if err := b.mesh.Install(ctx, form.values()...); err != nil {
			return err
		}

		var refused []int
		var recovered []time.Duration
		for seed := range uint64(seeds) {
			b.progress("%s: failures with seed %d", form.name, seed)
			count, took, err := b.failRandomly(ctx, form, rand.New(rand.NewPCG(seed, 0)))
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", form.name, seed, err)
			}
			refused, recovered = append(refused, count), append(recovered, took.Round(10*time.Millisecond))
		}

		slices.Sort(refused)
		slices.Sort(recovered)
		fmt.Fprintf(b.Out, "| %s | %d (%v) | %s (%v) |\n", form.name, refused[seeds/2], refused, recovered[seeds/2], recovered)
	}
	return nil
}

func (b *bench) failRandomly(ctx context.Context, form form, random *rand.Rand) (refused int, recovered time.Duration, err error) {
	if err := b.mesh.ApplyText(ctx, failuresObjects); err != nil {
		return 0, 0, err
	}
	if err := b.awaitWanted(ctx); err != nil {
		return 0, 0, err
	}
	counted := b.countRefused(ctx)
	services := []string{form.service, "instance-writer", "discovery-operator"}
	if form.value == dynamic.value {
		services = append(services, "dra-controller")
	}

	end := time.After(failuresFor)
	for ended := false; !ended; {
		if err := b.fail(ctx, random, services); err != nil {
			return 0, 0, err
		}
		select {
		case <-end:
			ended = true
		case <-time.After(time.Duration(random.IntN(1000)) * time.Millisecond):
		}
	}

	last := time.Now()
	if err := b.awaitWanted(ctx); err != nil {
		return 0, 0, err
	}
	recovered = time.Since(last)
	return counted(), recovered, b.deleteFailures(ctx)
}

// fail deletes a Pod with a device, as its user does, or a Pod of a service, as if it was killed. A
// container that is killed repeatedly would restart later each time.
func (b *bench) fail(ctx context.Context, random *rand.Rand, services []string) error {
	pods, options := b.mesh.Kubernetes.CoreV1().Pods(namespace), metav1.DeleteOptions{}
	selector := "app=bench-failures"
	if random.IntN(10) < 3 {
		pods, options.GracePeriodSeconds = b.mesh.Kubernetes.CoreV1().Pods(mesh.Namespace), new(int64)
		selector = "app.kubernetes.io/component=" + services[random.IntN(len(services))]
	}

	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	running := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !runs(&pod) })
	if len(running) == 0 {
		return nil
	}

	slices.SortFunc(running, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	err = pods.Delete(ctx, running[random.IntN(len(running))].Name, options)
	if err != nil {
		return fmt.Errorf("delete Pod: %w", err)
	}
	return nil
}

func runs(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

// countRefused watches the Pods until the returned function is called, which returns the number of
// those that a kubelet refused.
func (b *bench) countRefused(ctx context.Context) func() int {
	ctx, cancel := context.WithCancel(ctx)
	refused := sets.Set[string]{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = mesh.AwaitObjects(ctx, "the end", b.mesh.Kubernetes.CoreV1().Pods(namespace), failurePods, func(pods []corev1.Pod) error {
			for _, pod := range pods {
				if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" && pod.DeletionTimestamp == nil {
					refused.Insert(pod.Name)
				}
			}
			return errors.New("the failures continue")
		})
	}()
	return func() int {
		cancel()
		<-done
		return refused.Len()
	}
}

var failurePods = metav1.ListOptions{LabelSelector: "app=bench-failures"}

// awaitWanted waits until as many Pods run as are wanted.
func (b *bench) awaitWanted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	return mesh.AwaitObjects(ctx, "all Pods", pods, failurePods, func(found []corev1.Pod) error {
		running := slices.DeleteFunc(slices.Clone(found), func(pod corev1.Pod) bool { return !runs(&pod) })
		if len(running) != wantedPods {
			return fmt.Errorf("%d of %d Pods run", len(running), wantedPods)
		}
		return nil
	})
}

// deleteFailures deletes the objects and waits for the end of the Pods, so that the next seed
// starts with free slots.
func (b *bench) deleteFailures(ctx context.Context) error {
	if err := b.mesh.DeleteText(ctx, failuresObjects); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	return mesh.AwaitObjects(ctx, "the end of the Pods", pods, failurePods, func(found []corev1.Pod) error {
		if len(found) > 0 {
			return fmt.Errorf("%d Pods exist", len(found))
		}
		return nil
	})
}
