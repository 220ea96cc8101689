package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// restore brings all devices and Configurations back, with the first capacity and all replicas, and
// waits until the cluster is as the model. Otherwise the quantities of two quiet phases would
// differ because the devices do.
func (s *soak) restore(ctx context.Context) error {
	settling, cancel := context.WithTimeout(ctx, s.Settle)
	defer cancel()
	for _, c := range s.model.configurations {
		err := cluster.Wait(settling, scanInterval, func() error {
			s.reap(settling)
			if c.exists && !s.matches(c) || !c.exists && !s.gone(c) || !s.allFree(c) {
				return fmt.Errorf("devices of %s cannot return yet", c.name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.model.update(func() {
			c.exists, c.capacity = true, c.capacities[0]
			for _, p := range c.places {
				if c.handler != udevHandler {
					c.present[p] += 0 // a device that is absent has no entry
				}
			}
			for _, w := range c.workloads {
				w.replicas = w.max
			}
		})
		if err := s.write(settling, c); err != nil {
			return err
		}
	}
	if err := s.plugAll(settling); err != nil {
		return err
	}
	return s.settle(ctx)
}

// allFree reports whether all absent devices can return.
func (s *soak) allFree(c *configuration) bool {
	return !slices.ContainsFunc(c.places, func(p place) bool {
		_, present := c.present[p]
		return !present && !s.free(c, c.instance(p))
	})
}

// settle waits until the state of the cluster is that of the model. The error has the difference.
func (s *soak) settle(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.Settle)
	defer cancel()
	reported := time.Now()
	return cluster.Wait(waiting, scanInterval, func() error {
		s.reap(ctx)
		// Not with the deadline, which would replace the difference.
		err := s.settled(ctx)
		if err != nil && time.Since(reported) > progressInterval {
			s.progress("waiting: %v", err)
			reported = time.Now()
		}
		return err
	})
}

// settled returns the first difference between the state of the cluster and the model.
func (s *soak) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	instances, err := s.checkInstances()
	if err != nil {
		return err
	}
	jobs, err := s.mesh.Kubernetes.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for _, c := range s.model.configurations {
		if err := errors.Join(s.checkConfiguration(c), s.checkWorkloads(c), s.checkBrokersOf(c, jobs.Items)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for _, pod := range s.servicePods() {
		if !mesh.Ready(pod) {
			return fmt.Errorf("%s is not ready", pod.Name)
		}
	}
	if err := s.checkHeld(instances); err != nil {
		return err
	}
	for _, node := range s.nodes.List() {
		if err := checkAllocatable(node, instances); err != nil {
			return err
		}
	}
	return nil
}

// checkInstances returns all Instances, or an error if they are not those of the model.
func (s *soak) checkInstances() ([]*akriv0.Instance, error) {
	want := s.model.instances()
	instances := s.instances.List()
	for _, instance := range instances {
		expected, exists := want[instance.Name]
		if !exists {
			return nil, fmt.Errorf("the Instance %s exists, and its device does not", instance.Name)
		}
		if err := checkInstance(instance, expected); err != nil {
			return nil, err
		}
		delete(want, instance.Name)
	}
	if len(want) > 0 {
		return nil, fmt.Errorf("the Instances %v do not exist", slices.Sorted(maps.Keys(want)))
	}
	return instances, nil
}

// checkHeld returns an error if the slots that a node holds are not those that its containers use.
func (s *soak) checkHeld(instances []*akriv0.Instance) error {
	running := s.running()
	for _, instance := range instances {
		holding, err := held(instance)
		if err != nil {
			return err
		}
		if using := count(running, instance.Name); !maps.Equal(using, holding) {
			return fmt.Errorf("containers that use %s: %v, slots that are held: %v", instance.Name, using, holding)
		}
	}
	return nil
}

func (s *soak) checkConfiguration(c *configuration) error {
	object, exists := s.configurations.Get(namespace + "/" + c.name)
	if exists != c.exists {
		return fmt.Errorf("exists: %t, expected: %t", exists, c.exists)
	}
	if !exists {
		return nil
	}
	if object.Status.ObservedGeneration != object.Generation {
		return fmt.Errorf("the status is of generation %d, expected %d", object.Status.ObservedGeneration, object.Generation)
	}
	for kind, reasons := range quietReasons {
		condition := meta.FindStatusCondition(object.Status.Conditions, kind)
		if condition == nil || !slices.Contains(reasons, condition.Reason) || condition.ObservedGeneration != object.Generation {
			return fmt.Errorf("condition %s of generation %d is %+v", kind, object.Generation, condition)
		}
	}
	return nil
}

// quietReasons are the reasons of the conditions when nothing is broken.
var quietReasons = map[string][]string{
	akriv0.ConditionReady:          {akriv0.ReasonAsExpected},
	akriv0.ConditionDevicesWorking: {"Works", "NoneFound"},
	akriv0.ConditionBrokersRunning: {akriv0.ReasonAsExpected, akriv0.ReasonNoBroker},
	akriv0.ConditionBrokersWorking: {"Works", akriv0.ReasonNotNeeded},
}

// checkWorkloads returns an error if the number of running Pods of the workloads is not that of the
// requested slots that exist.
func (s *soak) checkWorkloads(c *configuration) error {
	want, running := 0, 0
	if c.exists {
		want = c.running(s.model.nodes)
	}
	for _, pod := range s.pods.List() {
		if pod.Labels[workloadLabel] == c.name && pod.Spec.NodeName != "" && !ended(pod) {
			if !mesh.Ready(pod) {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
			running++
		}
	}
	if running != want {
		return fmt.Errorf("%d Pods of workloads run, expected %d", running, want)
	}
	return nil
}

// checkBrokersOf returns an error if the brokers of a Configuration are not those of its Instances,
// or do not run.
func (s *soak) checkBrokersOf(c *configuration, jobs []batchv1.Job) error {
	want := map[string]int{}
	if c.exists {
		for name, e := range c.instances(s.model.nodes) {
			if brokers := c.brokers(e); brokers > 0 {
				want[name] = brokers
			}
		}
	}
	found := map[string]int{}
	for _, pod := range s.pods.List() {
		if c.broker == podBroker && pod.Labels[mesh.ConfigurationLabel] == c.name {
			if !mesh.Ready(pod) {
				return fmt.Errorf("broker %s is not ready", pod.Name)
			}
			found[pod.Labels[mesh.InstanceLabel]]++
		}
	}
	for _, job := range jobs {
		if job.Labels[mesh.ConfigurationLabel] == c.name {
			if !slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
				return condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("job %s is not complete", job.Name)
			}
			found[job.Labels[mesh.InstanceLabel]]++
		}
	}
	if !maps.Equal(found, want) {
		return fmt.Errorf("the brokers are %v, expected %v", found, want)
	}
	return nil
}

// cleanUp deletes what Kubernetes keeps for an hour or longer: Events, and the Pods of workloads
// that a kubelet rejected. It returns the number of these Pods.
func (s *soak) cleanUp(ctx context.Context) (count int) {
	for _, pod := range s.pods.List() {
		if pod.Labels[workloadLabel] != "" && ended(pod) {
			count++
		}
	}
	core := s.mesh.Kubernetes.CoreV1()
	// The next call repeats a deletion that fails.
	_ = core.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: workloadLabel, FieldSelector: "status.phase=Failed"})
	for _, events := range []string{namespace, mesh.Namespace} {
		_ = core.Events(events).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	return count
}

// compact deletes the history of etcd before the last quiet phase. kube-apiserver does that every
// five minutes, but not in the first minutes after its start, so that the size would depend on when
// it was killed.
func (s *soak) compact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	revision, err := s.mesh.Cluster.EtcdRevision(ctx)
	if err != nil {
		return err
	}
	if s.revision != "" {
		err = s.mesh.Cluster.CompactEtcd(ctx, s.revision)
	}
	s.revision = revision
	return err
}
