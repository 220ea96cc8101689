// Package probe runs a Pod that requests a device, and finds out whether it gets the device.
package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
)

const (
	// Deadline is the time after which the kubelet ends the Pod, also if it is not deleted.
	Deadline = time.Minute
	// user is that of no process.
	user = 65532
	// cleanupTimeout limits the deletion after the user has interrupted the command.
	cleanupTimeout = 10 * time.Second
)

// Plan is a Pod to run.
type Plan struct {
	Pod *corev1.Pod
	// Node is where the Pod runs, and Image a program of Akri that is there.
	Node, Image string
	// Resource is what the Pod requests.
	Resource string
	// Free is the number of slots that are free before.
	Free int
}

// ErrNoSlot means that all slots are in use.
var ErrNoSlot = errors.New("all slots are in use")

// Of returns the plan for a device of the namespace, or for any of a Configuration. The Pod needs
// only what is there, and takes nothing from others.
func Of(s *explain.Snapshot, namespace, name string) (Plan, error) {
	instances := explain.Where(s.Instances, func(i *akriv0.Instance) bool {
		return i.Namespace == namespace && (i.Name == name || i.Spec.ConfigurationName == name)
	})
	if len(instances) == 0 {
		return Plan{}, fmt.Errorf("the namespace %s has no device or Configuration with devices named %q", namespace, name)
	}

	plan := Plan{Resource: akriv0.ResourceName(name)}
	for _, instance := range instances {
		for _, slot := range s.Slots(instance) {
			if slot.Node != "" || slot.Problem != "" {
				continue
			}
			plan.Free++
			if plan.Node == "" {
				plan.Node, plan.Image = place(s, instance)
			}
		}
	}
	switch {
	case plan.Free == 0:
		return Plan{}, ErrNoSlot
	case plan.Node == "":
		return Plan{}, fmt.Errorf("no node that sees %s is ready and runs a Pod of Akri, whose image the probe uses", name)
	}
	plan.Pod = plan.pod(namespace, s.UsesClaims(plan.Node))
	return plan, nil
}

// place returns a node that sees the device, and the image of a Pod of Akri on it.
func place(s *explain.Snapshot, instance *akriv0.Instance) (node, image string) {
	for _, name := range instance.Spec.Nodes {
		found := explain.Find(s.Nodes, "", name)
		if found == nil || !explain.NodeReady(found) {
			continue
		}
		i := slices.IndexFunc(s.Pods, func(pod corev1.Pod) bool {
			return explain.IsAkri(&pod) && pod.Spec.NodeName == name && pod.Status.Phase == corev1.PodRunning
		})
		if i >= 0 {
			return name, s.Pods[i].Spec.Containers[0].Image
		}
	}
	return "", ""
}

// pod returns a Pod that prints the help of a program and ends. It has no token, and needs nothing
// that the Pod Security level restricted does not allow. With nodeName, no scheduler can remove
// other Pods for it. Claims need the scheduler: checkPreemption.
func (p Plan) pod(namespace string, claims bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "akri-probe-", Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ActiveDeadlineSeconds: new(int64(Deadline.Seconds())), TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(user)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "probe", Image: p.Image, ImagePullPolicy: corev1.PullNever, Args: []string{"--help"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("8Mi")},
					Limits: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
						corev1.ResourceName(p.Resource): *resource.NewQuantity(1, resource.DecimalSI),
					},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if claims {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: p.Node}
	} else {
		pod.Spec.NodeName = p.Node
	}
	return pod
}

// Run runs the Pod and deletes it. It returns the verdict on the Pod, which Works if it has got the
// device, and how long that took.
func Run(ctx context.Context, client *cluster.Client, plan Plan) (verdict explain.Verdict, took time.Duration, err error) {
	if err := plan.checkPreemption(ctx, client); err != nil {
		return verdict, 0, err
	}

	began := time.Now()
	pods := client.Kubernetes.CoreV1().Pods(plan.Pod.Namespace)
	created, err := pods.Create(ctx, plan.Pod, metav1.CreateOptions{FieldManager: "kubectl-akri"})
	if err != nil {
		return verdict, 0, fmt.Errorf("create the Pod: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if deleteErr := pods.Delete(ctx, created.Name, metav1.DeleteOptions{}); deleteErr != nil && !apierrors.IsNotFound(deleteErr) {
			err = errors.Join(err, fmt.Errorf("delete the Pod %s: %w", created.Name, deleteErr))
		}
	}()

	waiting, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	if err := await(waiting, client, created); err != nil && ctx.Err() != nil {
		return verdict, 0, err
	}
	took = time.Since(began)
	snapshot, err := client.Snapshot(ctx, plan.Pod.Namespace)
	if err != nil {
		return verdict, took, err
	}
	return explain.Pod(snapshot, created.Namespace, created.Name).Verdicts[0], took, nil
}

// checkPreemption returns an error if the scheduler could remove a Pod with a lower priority for
// the probe. The API server decides the priority of a Pod that names none, so it creates the Pod in
// a dry run.
func (p Plan) checkPreemption(ctx context.Context, client *cluster.Client) error {
	if p.Pod.Spec.NodeName != "" {
		return nil
	}
	all := client.Kubernetes.CoreV1().Pods
	dryRun, err := all(p.Pod.Namespace).Create(ctx, p.Pod, metav1.CreateOptions{FieldManager: "kubectl-akri", DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create the Pod in a dry run: %w", err)
	}
	if policy := dryRun.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return nil
	}

	onNode, err := all(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.Node).String()})
	if err != nil {
		return fmt.Errorf("list the Pods of the node: %w", err)
	}
	for i := range onNode.Items {
		pod := &onNode.Items[i]
		if priority(pod) < priority(dryRun) {
			return fmt.Errorf("the scheduler could remove the Pod %s/%s for the probe, because it has a lower priority (%d instead of %d)",
				pod.Namespace, pod.Name, priority(pod), priority(dryRun))
		}
	}
	return nil
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// await waits until the Pod has ended.
func await(ctx context.Context, client *cluster.Client, pod *corev1.Pod) error {
	selected := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(), ResourceVersion: pod.ResourceVersion,
	}
	events, err := client.Kubernetes.CoreV1().Pods(pod.Namespace).Watch(ctx, selected)
	if err != nil {
		return fmt.Errorf("watch the Pod: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		now, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed {
			return nil
		}
	}
	return ctx.Err()
}
