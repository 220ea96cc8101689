package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const (
	killInterval, faultInterval = 4 * time.Second, 10 * time.Second
	// outageInterval is the least time between two failures of the API server. client-go doubles
	// its delays until a watch has worked for two minutes.
	outageInterval = 3 * time.Minute
)

// faults break a part of the cluster and repair it. The processes on the first node and its
// replicas of the cluster services run during the whole soak, so that their memory can be compared.
var faults = []action{
	{"kubelet", 3, (*soak).killKubelet},
	{"node", 2, (*soak).stopNode},
	{"cordon", 2, (*soak).cordonNode},
	{"api-server", 1, (*soak).killAPI},
	{"handler-pods", 2, (*soak).stopHandler},
	{"sockets", 2, (*soak).removeSockets},
}

// killServices kills one container of Akri after the other until ctx ends.
func (s *soak) killServices(ctx context.Context, random *rand.Rand) {
	_ = every(ctx, killInterval, func() {
		pods := s.servicePods()
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
			return pod.Spec.NodeName == s.model.nodes[0] || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
		})
		if len(pods) == 0 {
			return
		}
		pod := pods[random.IntN(len(pods))]
		for _, status := range pod.Status.ContainerStatuses {
			if s.kill(pod, status) {
				s.did("killed-"+pod.Labels["app.kubernetes.io/component"], "%s on %s", pod.Name, pod.Spec.NodeName)
			}
		}
	})
}

// pid returns the main process of a container and reports whether it runs.
func (s *soak) pid(pod *corev1.Pod, status corev1.ContainerStatus) (pid int, runs bool) {
	node, err := s.mesh.Cluster.Node(pod.Spec.NodeName)
	if err != nil {
		return 0, false
	}
	containers, _ := node.Containers() // none after an error
	at := slices.IndexFunc(containers, func(c cluster.Container) bool { return strings.HasSuffix(status.ContainerID, "/"+c.ID) })
	if at < 0 {
		return 0, false
	}
	return containers[at].PID, true
}

// kill kills the main process of a container and reports whether it ran.
func (s *soak) kill(pod *corev1.Pod, status corev1.ContainerStatus) bool {
	pid, runs := s.pid(pod, status)
	if !runs {
		return false
	}
	s.killing.Lock()
	defer s.killing.Unlock()
	s.allow(string(pod.UID), status.Name, 1)
	if syscall.Kill(pid, syscall.SIGKILL) != nil {
		s.allow(string(pod.UID), status.Name, -1)
		return false
	}
	return true
}

// servicePods returns the Pods of Akri, by name.
func (s *soak) servicePods() []*corev1.Pod {
	pods := slices.DeleteFunc(s.pods.List(), func(pod *corev1.Pod) bool {
		return pod.Namespace != mesh.Namespace || pod.Labels["app.kubernetes.io/part-of"] != "akri"
	})
	slices.SortFunc(pods, byName)
	return pods
}

func (s *soak) killKubelet(ctx context.Context, random *rand.Rand) (string, error) {
	nodes := s.mesh.Cluster.Nodes()
	node := nodes[random.IntN(len(nodes))]
	s.killing.Lock()
	err := errors.Join(s.allowRestarts(node, 0, 1), node.KillKubelet(ctx))
	s.killing.Unlock()
	if err != nil {
		return "", err
	}
	away := time.Duration(random.IntN(4)) * time.Second
	return fmt.Sprintf("%s, away for %s", node.Name(), away), errors.Join(cluster.Pause(ctx, away), node.StartKubelet(ctx))
}

// removeSockets removes the sockets of Akri on a node, except that of the handler of this process,
// which binds it once.
func (s *soak) removeSockets(_ context.Context, random *rand.Rand) (string, error) {
	nodes := s.mesh.Cluster.Nodes()
	node := nodes[random.IntN(len(nodes))]
	removed := 0
	for _, directory := range []string{node.AkriDir(), node.RunDir()} {
		err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type() != fs.ModeSocket || entry.Name() == localHandler+".sock" {
				return ignoreMissing(err)
			}
			removed++
			return ignoreMissing(os.Remove(path))
		})
		if err != nil {
			return "", fmt.Errorf("remove sockets: %w", err)
		}
	}
	return fmt.Sprintf("%d on %s", removed, node.Name()), nil
}

// ignoreMissing returns the error unless the file does not exist: a node may be stopped.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *soak) stopNode(ctx context.Context, random *rand.Rand) (string, error) {
	nodes := s.mesh.Cluster.Nodes()[1:]
	node := nodes[random.IntN(len(nodes))]
	if err := s.stopContainers(ctx, node); err != nil {
		return "", err
	}
	away := time.Duration(2+random.IntN(6)) * time.Second
	return fmt.Sprintf("%s, away for %s", node.Name(), away), errors.Join(cluster.Pause(ctx, away), node.Start(ctx))
}

// stopContainers stops the node with all its containers.
func (s *soak) stopContainers(ctx context.Context, node cluster.Node) error {
	s.killing.Lock()
	defer s.killing.Unlock()
	if err := s.allowRestarts(node, 1, 2); err != nil {
		return err
	}
	return node.Stop(ctx)
}

// allowRestarts allows restarts of each container of Akri on the node: of one that runs, and of one
// that is being restarted at the moment. If the kubelet is killed after it has created a container,
// it counts this container and starts another.
func (s *soak) allowRestarts(node cluster.Node, running, starting int) error {
	containers, err := node.Containers()
	if err != nil {
		return err
	}
	for _, pod := range s.servicePods() {
		if pod.Spec.NodeName != node.Name() {
			continue
		}
		for _, status := range pod.Status.ContainerStatuses {
			restarts := starting
			if slices.ContainsFunc(containers, func(c cluster.Container) bool { return strings.HasSuffix(status.ContainerID, "/"+c.ID) }) {
				restarts = running
			}
			s.allow(string(pod.UID), status.Name, restarts)
		}
	}
	return nil
}

func (s *soak) cordonNode(ctx context.Context, random *rand.Rand) (string, error) {
	node := s.model.nodes[random.IntN(len(s.model.nodes))]
	return node, errors.Join(s.cordon(ctx, node, true), cluster.Pause(ctx, 5*time.Second), s.cordon(ctx, node, false))
}

func (s *soak) cordon(ctx context.Context, node string, unschedulable bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable)
	return write(ctx, "change of "+node, func(ctx context.Context) error {
		_, err := s.mesh.Kubernetes.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (s *soak) killAPI(ctx context.Context, random *rand.Rand) (string, error) {
	if time.Since(s.lastOutage()) < outageInterval {
		return "", nil
	}
	s.apiDown()
	defer s.apiDown()
	if err := s.mesh.Cluster.KillAPI(ctx); err != nil {
		return "", err
	}
	away := time.Duration(random.IntN(4)) * time.Second
	return fmt.Sprintf("away for %s", away), errors.Join(cluster.Pause(ctx, away), s.mesh.Cluster.StartAPI(ctx))
}

// restartExited restarts parts of the control plane that exit, until ctx ends.
func (s *soak) restartExited(ctx context.Context) {
	_ = every(ctx, restartInterval, func() {
		names, err := s.mesh.Cluster.RestartExited(ctx)
		for _, name := range names {
			s.did("restarted-"+name, "it had exited")
		}
		if err != nil && ctx.Err() == nil {
			s.violated(err)
		}
	})
}

// stopHandler removes the Pods of a Discovery Handler for a while. Its devices stay, because the
// handler is not away for five minutes.
func (s *soak) stopHandler(ctx context.Context, random *rand.Rand) (string, error) {
	away := time.Duration(2+random.IntN(6)) * time.Second
	return fmt.Sprintf("away for %s", away), errors.Join(s.writeHandler(ctx, handlerPods(false)), cluster.Pause(ctx, away), s.writeHandler(ctx, handlerPods(true)))
}

func (s *soak) writeHandler(ctx context.Context, set *appsv1.DaemonSet) error {
	return apply(ctx, set, s.mesh.Kubernetes.AppsV1().DaemonSets(namespace).Patch)
}

func byName(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }
