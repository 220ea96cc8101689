package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const (
	churnInterval = 300 * time.Millisecond
	// actionTimeout limits one change, and one fault with its repair.
	actionTimeout = 3 * time.Minute
	// absence is the least time for which a device is absent.
	absence = 3 * time.Second
	// writeTimeout limits the attempts of one write, while the API server or the webhook is down.
	writeTimeout, writeInterval = 90 * time.Second, 250 * time.Millisecond
)

// action is a random change of devices, Configurations or Pods, or a fault. It returns what it did,
// or nothing if there is nothing to do.
type action struct {
	kind   string
	weight int
	make   func(*soak, context.Context, *rand.Rand) (string, error)
}

var changes = []action{
	{"device", 10, (*soak).changeDevice},
	{"zram", 3, (*soak).changeZram},
	{"device-properties", 4, (*soak).changeLocal},
	{"properties", 4, (*soak).changeProperties},
	{"capacity", 2, (*soak).changeCapacity},
	{"configuration", 2, (*soak).changeConfiguration},
	{"pod-deletion", 8, (*soak).deletePod},
	{"job-deletion", 1, (*soak).deleteJob},
	{"scaling", 3, (*soak).scale},
}

// act makes one random action after the other until ctx ends. An action ends with run, so that it
// is complete when act returns: changes are written, and faults are repaired.
func (s *soak) act(ctx, run context.Context, random *rand.Rand, interval time.Duration, actions []action) {
	_ = every(ctx, interval, func() {
		limited, cancel := context.WithTimeout(run, actionTimeout)
		defer cancel()
		a := pick(random, actions)
		done, err := a.make(s, limited, random)
		switch {
		case run.Err() != nil:
		case err != nil:
			s.violated(fmt.Errorf("%s: %w", a.kind, err))
		case done != "":
			s.did(a.kind, "%s", done)
		}
	})
}

// pick returns a random action, by weight.
func pick(random *rand.Rand, actions []action) action {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	at := random.IntN(total)
	for _, a := range actions {
		if at -= a.weight; at < 0 {
			return a
		}
	}
	panic("no weights")
}

// write repeats a write until it succeeds: the API server or the webhook can be down.
func write(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := cluster.Wait(ctx, writeInterval, func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx)
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// writeConfiguration creates or changes a Configuration as the model has it.
func (s *soak) writeConfiguration(ctx context.Context, c *configuration) error {
	return apply(ctx, c.object(), s.mesh.Configurations.In(namespace).Patch)
}

// random returns a random Configuration that exists.
func (s *soak) random(random *rand.Rand) *configuration {
	existing := slices.DeleteFunc(slices.Clone(s.model.configurations), func(c *configuration) bool { return !c.exists })
	if len(existing) == 0 {
		return nil
	}
	return existing[random.IntN(len(existing))]
}

// matches reports whether all Instances of the Configuration are as expected. Otherwise a deletion
// that is still being written could be taken for a deletion of a device that returned.
func (s *soak) matches(c *configuration) bool {
	want := c.instances(s.model.nodes)
	found := 0
	for _, instance := range s.instances.List() {
		if instance.Spec.ConfigurationName != c.name {
			continue
		}
		expected, exists := want[instance.Name]
		if !exists || checkInstance(instance, expected) != nil {
			return false
		}
		found++
	}
	return found == len(want)
}

// changeDevice removes a device or adds it.
func (s *soak) changeDevice(ctx context.Context, random *rand.Rand) (string, error) {
	c := s.random(random)
	if c == nil || c.handler == "http" || c.handler == udevHandler || !s.matches(c) {
		return "", nil
	}
	p := c.places[random.IntN(len(c.places))]
	_, present := c.present[p]
	// A device that is absent must wait, so devices are removed less often than they are added.
	if present && random.IntN(2) == 0 || !present && !s.free(c, c.instance(p)) {
		return "", nil
	}
	s.model.update(func() {
		if present {
			delete(c.present, p)
			c.removed = time.Now()
		} else {
			c.present[p] = 0
		}
	})
	return fmt.Sprintf("%s, present: %t", c.instance(p), !present), s.writeDevices(ctx, c)
}

func (s *soak) writeDevices(ctx context.Context, c *configuration) error {
	if c.handler != localHandler {
		return s.writeConfiguration(ctx, c)
	}
	for _, l := range s.locals {
		l.set(c.present)
	}
	return nil
}

// free reports whether no container uses the Instance and none can have been granted it. A
// container that got a device before the device was removed does not count for the new Instance.
func (s *soak) free(c *configuration, instance string) bool {
	if time.Since(c.removed) < absence {
		return false
	}
	for _, u := range s.running() {
		if slices.Contains(u.instances, instance) {
			return false
		}
	}
	return !slices.ContainsFunc(s.pods.List(), func(pod *corev1.Pod) bool {
		ofConfiguration := pod.Labels[workloadLabel] == c.name || pod.Labels[mesh.InstanceLabel] == instance
		return ofConfiguration && pod.Spec.NodeName != "" && !mesh.Ready(pod) && !ended(pod)
	})
}

// changeLocal changes a property of a local device.
func (s *soak) changeLocal(_ context.Context, random *rand.Rand) (string, error) {
	for _, c := range s.model.configurations {
		if c.handler != localHandler || !c.exists || !s.matches(c) {
			continue
		}
		p := c.places[random.IntN(len(c.places))]
		if _, present := c.present[p]; !present {
			return "", nil
		}
		s.model.update(func() { c.present[p]++ })
		for _, l := range s.locals {
			l.set(c.present)
		}
		return fmt.Sprintf("%s: %d", c.instance(p), c.present[p]), nil
	}
	return "", nil
}

// changeProperties changes the brokerProperties of a Configuration.
func (s *soak) changeProperties(ctx context.Context, random *rand.Rand) (string, error) {
	c := s.random(random)
	if c == nil || !s.matches(c) {
		return "", nil
	}
	s.model.update(func() { c.version++ })
	return fmt.Sprintf("%s: %d", c.name, c.version), s.writeConfiguration(ctx, c)
}

func (s *soak) changeCapacity(ctx context.Context, random *rand.Rand) (string, error) {
	c := s.random(random)
	if c == nil || len(c.capacities) == 1 || !s.matches(c) {
		return "", nil
	}
	s.model.update(func() { c.capacity = c.capacities[random.IntN(len(c.capacities))] })
	return fmt.Sprintf("%s: %d", c.name, c.capacity), s.writeConfiguration(ctx, c)
}

// changeConfiguration deletes a Configuration, or creates one that was deleted before.
func (s *soak) changeConfiguration(ctx context.Context, random *rand.Rand) (string, error) {
	c := s.model.configurations[random.IntN(len(s.model.configurations))]
	if c.exists && s.matches(c) && random.IntN(3) == 0 {
		s.model.update(func() { c.exists, c.removed = false, time.Now() })
		return c.name + " deleted", write(ctx, "deletion of "+c.name, func(ctx context.Context) error {
			return ignoreNotFound(s.mesh.Configurations.In(namespace).Delete(ctx, c.name, metav1.DeleteOptions{}))
		})
	}
	if c.exists || !s.gone(c) {
		return "", nil
	}
	s.model.update(func() { c.exists = true })
	return c.name + " created", s.writeConfiguration(ctx, c)
}

// gone reports whether nothing is left of a deleted Configuration.
func (s *soak) gone(c *configuration) bool {
	if _, exists := s.configurations.Get(namespace + "/" + c.name); exists {
		return false
	}
	for _, instance := range s.instances.List() {
		if instance.Spec.ConfigurationName == c.name {
			return false
		}
	}
	for p := range c.present {
		if !s.free(c, c.instance(p)) {
			return false
		}
	}
	return true
}

// deletePod deletes a random broker or Pod of a workload, sometimes without a grace period.
func (s *soak) deletePod(ctx context.Context, random *rand.Rand) (string, error) {
	pods := slices.DeleteFunc(s.pods.List(), func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Labels[workloadLabel] == "" && pod.Labels[mesh.InstanceLabel] == ""
	})
	if len(pods) == 0 {
		return "", nil
	}
	slices.SortFunc(pods, byName)
	pod := pods[random.IntN(len(pods))]
	options := metav1.NewPreconditionDeleteOptions(string(pod.UID))
	if random.IntN(4) == 0 {
		options.GracePeriodSeconds = new(int64)
		s.recordForced(string(pod.UID))
	}
	return fmt.Sprintf("%s on %s, forced: %t", pod.Name, pod.Spec.NodeName, options.GracePeriodSeconds != nil), s.deleteOne(ctx, pod, *options)
}

func (s *soak) deleteOne(ctx context.Context, pod *corev1.Pod, options metav1.DeleteOptions) error {
	return write(ctx, "deletion of "+pod.Name, func(ctx context.Context) error {
		err := s.mesh.Kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if apierrors.IsConflict(err) {
			return nil // another Pod has the name
		}
		return ignoreNotFound(err)
	})
}

// deleteJob deletes a Job, which makes broker-controller run it again.
func (s *soak) deleteJob(ctx context.Context, random *rand.Rand) (string, error) {
	list, err := s.mesh.Kubernetes.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return "", nil //nolint:nilerr // the API server is down
	}
	name := list.Items[random.IntN(len(list.Items))].Name
	background := metav1.DeletePropagationBackground
	return name, write(ctx, "deletion of "+name, func(ctx context.Context) error {
		return ignoreNotFound(s.mesh.Kubernetes.BatchV1().Jobs(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
	})
}

// scale changes the number of replicas of a workload.
func (s *soak) scale(ctx context.Context, random *rand.Rand) (string, error) {
	c := s.random(random)
	if c == nil || len(c.workloads) == 0 {
		return "", nil
	}
	w := c.workloads[random.IntN(len(c.workloads))]
	s.model.update(func() { w.replicas = random.IntN(w.max + 1) })
	return fmt.Sprintf("%s: %d", w.name, w.replicas), s.writeWorkload(ctx, c, w)
}

func (s *soak) writeWorkload(ctx context.Context, c *configuration, w *workload) error {
	return apply(ctx, c.deployment(w), s.mesh.Kubernetes.AppsV1().Deployments(namespace).Patch)
}

// reap deletes the Pods of workloads that use a device that no longer exists. Akri leaves them
// running.
func (s *soak) reap(ctx context.Context) {
	for _, u := range s.running() {
		if !slices.ContainsFunc(u.instances, func(name string) bool { return !s.model.wants(name) }) {
			continue
		}
		if pod := s.pod(u.PodUID); pod != nil && pod.Labels[workloadLabel] != "" && pod.DeletionTimestamp == nil {
			// The next call repeats a deletion that fails.
			_ = s.mesh.Kubernetes.CoreV1().Pods(namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(u.PodUID))
		}
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
