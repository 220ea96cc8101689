package cluster_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"akri.sh/integration/cluster"
)

const timeout = 60 * time.Second

// TestRealCluster starts one cluster, uses it, breaks it and removes it, in this order.
func TestRealCluster(t *testing.T) {
	s := newSuite(t)
	t.Run("Up starts a cluster that runs pods", s.up)
	t.Run("a pod reaches a pod of another node", s.podToPod)
	t.Run("a pod reaches a Service by address and by name", s.services)
	t.Run("kubectl exec and logs work from the machine", s.execAndLogs)
	t.Run("the API server reaches a webhook through its Service", s.webhook)
	t.Run("a service account token works in a pod", s.serviceAccount)
	t.Run("each node has its own directories", s.nodeDirs)
	t.Run("a machine can join as a node", s.join)
	t.Run("a killed container is restarted", s.killContainer)
	t.Run("pods keep running while their kubelet is stopped", s.kubelet)
	t.Run("a node that was powered off restarts with its pods", s.node)
	t.Run("Up returns the running cluster and starts its stopped parts", s.upAgain)
	t.Run("Up replaces a cluster whose processes were killed", s.upAfterCrash)
	t.Run("Down removes everything", s.down)
}

// TestDownAfterUpWasKilled kills Up at several steps.
func TestDownAfterUpWasKilled(t *testing.T) {
	s := newSuite(t)
	binary := filepath.Join(t.TempDir(), "akri-cluster")
	goBuild(t, binary, "../cmd/akri-cluster")
	for _, step := range []string{"starting the control plane", "starting the kubelets", "waiting for nodes"} {
		t.Run(step, func(t *testing.T) {
			cmd := exec.Command(binary, "--dir", s.dir, "up")
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			var output bytes.Buffer
			for chunk := make([]byte, 256); !strings.Contains(output.String(), step); {
				n, err := stderr.Read(chunk)
				require.NoError(t, err, "up ended before this step: %s", &output)
				output.Write(chunk[:n])
			}
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			_, err = cluster.Open(s.dir)
			require.ErrorContains(t, err, "no cluster runs")
			s.down(t)
		})
	}
}

func TestCancelledUpLeavesOnlyLogs(t *testing.T) {
	s := newSuite(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := cluster.Up(ctx, cluster.Config{Dir: s.dir, Progress: func(step string) {
		if strings.HasPrefix(step, "waiting for nodes") {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	left, err := filepath.Glob(filepath.Join(s.dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(s.dir, "lock"), filepath.Join(s.dir, "log")}, left)
	s.down(t)
}

type suite struct {
	dir     string
	image   string
	cluster *cluster.Cluster
	client  kubernetes.Interface
}

const probeImage = "cluster.invalid/probe:1"

func newSuite(t *testing.T) *suite {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a cluster needs root")
	}
	dir, err := os.MkdirTemp("", "akri-test-") //nolint:usetesting // socket addresses must be short
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, cluster.Down(context.Background(), dir))
		_ = os.Remove(dir)
	})
	binary := filepath.Join(t.TempDir(), "probe")
	goBuild(t, binary, "./internal/probe", "CGO_ENABLED=0")
	image := filepath.Join(t.TempDir(), "probe.tar")
	require.NoError(t, cluster.WriteImage(image, probeImage, binary))
	return &suite{dir: dir, image: image}
}

func goBuild(t *testing.T, out, pkg string, environment ...string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), environment...)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func (s *suite) start(t *testing.T) {
	t.Helper()
	c, err := cluster.Up(t.Context(), cluster.Config{
		Dir: s.dir, Images: []string{s.image}, Progress: func(step string) { t.Log(step) },
	})
	require.NoError(t, err)
	s.cluster = c
	config, err := c.RESTConfig()
	require.NoError(t, err)
	s.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
}

func (s *suite) up(t *testing.T) {
	start := time.Now()
	s.start(t)
	t.Logf("up after %s", time.Since(start))
	for _, name := range []string{"node-a", "node-b"} {
		s.pod(t, pod("web-"+name, name, "serve"))
	}
	for _, name := range []string{"node-a", "node-b"} {
		s.running(t, "web-"+name)
	}
}

func (s *suite) podToPod(t *testing.T) {
	target := s.running(t, "web-node-b").Status.PodIP
	s.eventually(t, "web-node-b", "exec", "web-node-a", "--", "/probe", "get", "http://"+target+":8080")
	target = s.running(t, "web-node-a").Status.PodIP
	s.eventually(t, "web-node-a", "exec", "web-node-b", "--", "/probe", "get", "http://"+target+":8080")
}

func (s *suite) services(t *testing.T) {
	service := s.service(t, "web", 80, 8080, map[string]string{"name": "web-node-b"})
	s.eventually(t, "web-node-b", "exec", "web-node-a", "--", "/probe", "get", "http://"+service.Spec.ClusterIP)
	for _, from := range []string{"web-node-a", "web-node-b"} {
		s.eventually(t, service.Spec.ClusterIP, "exec", from, "--", "/probe", "lookup", "web.default.svc.cluster.local")
		s.eventually(t, "web-node-b", "exec", from, "--", "/probe", "get", "http://web")
	}
}

func (s *suite) execAndLogs(t *testing.T) {
	s.eventually(t, "serving", "logs", "web-node-a")
	out, err := s.cluster.Kubectl(t.Context(), "exec", "web-node-a", "--", "/probe", "get").CombinedOutput()
	require.Error(t, err, "the exit code must be that of the command: %s", out)
}

func (s *suite) webhook(t *testing.T) {
	s.rejectConfigMaps(t, "rejected")
	require.Eventually(t, func() bool {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Namespace: "rejected"}}
		_, err := s.client.CoreV1().ConfigMaps("rejected").Create(t.Context(), config, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "rejected by probe")
	}, timeout, 200*time.Millisecond)
}

func (s *suite) serviceAccount(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	node, err := s.cluster.Node("node-a")
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), "default", "web-node-a", "main")
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "root", token))
	require.NoError(t, err)
	out, err := exec.Command(filepath.Join(s.dir, "bin", "kubectl"), "--kubeconfig=/dev/null", "--server="+s.server(t),
		"--certificate-authority="+filepath.Join(s.dir, "pki", "ca.crt"), "--token="+string(content), "auth", "whoami").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "system:serviceaccount:default:default")
}

func (s *suite) nodeDirs(t *testing.T) {
	for _, node := range s.cluster.Nodes() {
		require.FileExists(t, filepath.Join(node.KubeletDir(), "device-plugins", "kubelet.sock"))
		require.FileExists(t, filepath.Join(node.KubeletDir(), "pod-resources", "kubelet.sock"))
		cmd, err := node.Command(t.Context(), "sh", "-ec", "mkdir /var/lib/akri /run/akri; touch /var/lib/akri/lib-file /run/akri/run-file")
		require.NoError(t, err)
		require.NoError(t, cmd.Run(), "the directories must not exist on this node")
		require.FileExists(t, filepath.Join(node.AkriDir(), "lib-file"))
		require.FileExists(t, filepath.Join(node.RunDir(), "run-file"))
	}
	setting, err := os.ReadFile("/proc/sys/kernel/panic")
	require.NoError(t, err)
	node := s.cluster.Nodes()[0]
	cmd, err := node.Command(t.Context(), "cat", "/proc/sys/kernel/panic")
	require.NoError(t, err)
	inside, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "10\n", string(inside), "must be the kubelet's value; the machine has %s", setting)
}

// join checks what a machine gets. The tests of package vm join one.
func (s *suite) join(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, os.WriteFile(image, []byte("image"), 0o644))
	member, err := s.cluster.Join(t.Context(), cluster.MemberOptions{Name: "member", Images: []string{image}})
	require.NoError(t, err)
	for _, file := range []string{
		"bin/kubelet", "bin/containerd", "config/kubelet.yaml", "config/kubelet.kubeconfig", "config/pki/ca.crt",
		"images/pause.tar", "images/coredns.tar", "images/image.tar",
	} {
		require.FileExists(t, filepath.Join(member.Dir, file))
	}
	link, err := s.cluster.Neighbour(t.Context(), "ip", "-details", "link", "show", member.Tap)
	require.NoError(t, err)
	output, err := link.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "master br0")
	require.Contains(t, string(output), "tun type tap")

	for name, number := range map[string]int{"member": 1, "node-a": 1, "cp": 1, "Member": 1, "negative": -1, "large": 100} {
		_, err := s.cluster.Join(t.Context(), cluster.MemberOptions{Name: name, Number: number})
		require.Error(t, err, name)
	}
}

func (s *suite) killContainer(t *testing.T) {
	node, err := s.cluster.Node("node-a")
	require.NoError(t, err)
	before := restarts(s.running(t, "web-node-a"))
	require.NoError(t, node.KillContainer(t.Context(), "default", "web-node-a", "main", syscall.SIGKILL))
	require.Equal(t, before+1, restarts(s.restarted(t, "web-node-a", before+1)))
	require.ErrorContains(t, node.KillContainer(t.Context(), "default", "web-node-b", "main", syscall.SIGKILL), "does not run on node-a")
}

func (s *suite) kubelet(t *testing.T) {
	node, err := s.cluster.Node("node-a")
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), "default", "web-node-a", "main")
	require.NoError(t, err)
	require.NoError(t, node.StopKubelet(t.Context()))
	require.Equal(t, cluster.NoKubelet, node.State())
	s.eventually(t, "web-node-a", "exec", "web-node-b", "--", "/probe", "get", "http://"+s.running(t, "web-node-a").Status.PodIP+":8080")
	require.NoError(t, node.StartKubelet(t.Context()))
	require.ErrorContains(t, node.StartKubelet(t.Context()), "is running")

	// The end of a kubelet's log is the reason why it did not start.
	require.NoError(t, node.StopKubelet(t.Context()))
	config := filepath.Join(s.dir, "nodes", "node-a", "config", "kubelet.yaml")
	valid, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte("kind: None"), 0o644))
	require.ErrorContains(t, node.StartKubelet(t.Context()), "kubelet-node-a has exited; the end of ")
	require.NoError(t, os.WriteFile(config, valid, 0o644))
	require.NoError(t, node.StartKubelet(t.Context()))
	after, err := node.ContainerPID(t.Context(), "default", "web-node-a", "main")
	require.NoError(t, err)
	require.Equal(t, pid, after)
}

func (s *suite) node(t *testing.T) {
	node, err := s.cluster.Node("node-b")
	require.NoError(t, err)
	before := restarts(s.running(t, "web-node-b"))
	require.NoError(t, node.Stop(t.Context()))
	require.Equal(t, cluster.Stopped, node.State())
	require.FileExists(t, filepath.Join(node.AkriDir(), "lib-file"), "the disk must stay")
	_, err = node.Command(t.Context(), "true")
	require.ErrorContains(t, err, "node node-b is stopped")
	s.eventually(t, "10.96.", "exec", "web-node-a", "--", "/probe", "lookup", "kubernetes.default")

	require.NoError(t, node.Start(t.Context()))
	require.ErrorContains(t, node.Start(t.Context()), "is running")
	require.NoFileExists(t, filepath.Join(node.RunDir(), "run-file"), "/run must be empty after a boot")
	s.restarted(t, "web-node-b", before+1)
	s.eventually(t, "web-node-b", "exec", "web-node-a", "--", "/probe", "get", "http://web")

	// The proxy of the control plane has the name and the configuration of the first node.
	first := s.cluster.Nodes()[0]
	require.NoError(t, first.Stop(t.Context()))
	require.NoError(t, first.Start(t.Context()))
	exited, err := s.cluster.RestartExited(t.Context())
	require.NoError(t, err)
	require.Empty(t, exited)
}

func (s *suite) upAgain(t *testing.T) {
	kubeconfig, err := os.ReadFile(s.cluster.Kubeconfig())
	require.NoError(t, err)
	require.NoError(t, s.cluster.Nodes()[1].Stop(t.Context()))
	require.NoError(t, s.cluster.Nodes()[0].StopKubelet(t.Context()))
	s.kill(t, "kube-scheduler")
	s.start(t)
	after, err := os.ReadFile(s.cluster.Kubeconfig())
	require.NoError(t, err)
	require.Equal(t, kubeconfig, after)
	for _, node := range s.cluster.Nodes() {
		require.Equal(t, cluster.Running, node.State())
	}
	s.kill(t, "containerd-node-a") // its containers keep running
	require.Eventually(t, func() bool { return s.cluster.Nodes()[0].State() == cluster.Broken }, timeout, 10*time.Millisecond)
	s.start(t)
	require.Equal(t, cluster.Running, s.cluster.Nodes()[0].State())
	s.running(t, "web-node-a")
	_, err = cluster.Up(t.Context(), cluster.Config{Dir: s.dir, Nodes: []string{"other"}})
	require.ErrorContains(t, err, "take it down first")
}

func (s *suite) upAfterCrash(t *testing.T) {
	require.NoError(t, killAll(s.dir))
	s.start(t)
	s.pod(t, pod("web-node-a", "node-a", "serve"))
	s.running(t, "web-node-a")
}

func (s *suite) down(t *testing.T) {
	start := time.Now()
	require.NoError(t, cluster.Down(t.Context(), s.dir))
	t.Logf("down after %s", time.Since(start))
	require.Empty(t, traces(t, s.dir))
	require.NoError(t, cluster.Down(t.Context(), s.dir), "Down must be idempotent")
}
