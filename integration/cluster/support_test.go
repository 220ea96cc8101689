package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

func pod(name, node, command string, env ...corev1.EnvVar) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: probeImage, ImagePullPolicy: corev1.PullNever, Args: []string{command}, Env: env,
			}},
		},
	}
}

func (s *suite) pod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
}

// running waits until the pod's container runs and returns the pod.
func (s *suite) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return s.restarted(t, name, 0)
}

// restarted waits until the pod's container runs after at least that many restarts, and returns the
// pod.
func (s *suite) restarted(t *testing.T, name string, restarts int32) (found *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, mesh.AwaitObject(ctx, "pod "+name, s.client.CoreV1().Pods("default"), name, func(pod *corev1.Pod) error {
		statuses := pod.Status.ContainerStatuses
		if len(statuses) == 0 || statuses[0].State.Running == nil || statuses[0].RestartCount < restarts {
			return fmt.Errorf("the containers are %+v", statuses)
		}
		found = pod
		return nil
	}))
	return found
}

func restarts(p *corev1.Pod) int32 { return p.Status.ContainerStatuses[0].RestartCount }

func (s *suite) service(t *testing.T, name string, port, target int32, selector map[string]string) *corev1.Service {
	t.Helper()
	service, err := s.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: selector, Ports: []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(target)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return service
}

// eventually runs kubectl until its output contains want.
func (s *suite) eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	var last string
	if !check(timeout, func() bool {
		out, err := s.cluster.Kubectl(t.Context(), args...).CombinedOutput()
		last = fmt.Sprintf("%s (%v)", out, err)
		return err == nil && strings.Contains(string(out), want)
	}) {
		t.Fatalf("kubectl %q: got %s, want %q", args, last, want)
	}
}

func check(timeout time.Duration, condition func() bool) bool {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(timeout); time.Now().Before(end); <-ticker.C {
		if condition() {
			return true
		}
	}
	return false
}

func (s *suite) server(t *testing.T) string {
	t.Helper()
	config, err := s.cluster.RESTConfig()
	require.NoError(t, err)
	return config.Host
}

// rejectConfigMaps creates a namespace and a webhook that rejects all ConfigMaps in it. A pod
// behind a Service serves the webhook.
func (s *suite) rejectConfigMaps(t *testing.T, namespace string) {
	t.Helper()
	cert, key := selfSigned(t, "webhook.default.svc")
	s.pod(t, pod("webhook", "node-b", "webhook", corev1.EnvVar{Name: "CERT", Value: cert}, corev1.EnvVar{Name: "KEY", Value: key}))
	s.service(t, "webhook", 443, 8443, map[string]string{"name": "webhook"})
	s.running(t, "webhook")
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	fail, none, scope := admissionv1.Fail, admissionv1.SideEffectClassNone, admissionv1.NamespacedScope
	_, err = s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "probe.akri.sh", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Namespace: "default", Name: "webhook"}, CABundle: []byte(cert),
			},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func selfSigned(t *testing.T, host string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	privateDER, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privateDER}))
}

func writeKubeconfig(t *testing.T, path string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "x"
	require.NoError(t, clientcmd.WriteToFile(*config, path))
}

// kill kills one daemon, by the name of its log, without its children.
func (s *suite) kill(t *testing.T, daemon string) {
	t.Helper()
	for _, pid := range processesOf(s.dir) {
		binary, err := os.Readlink(filepath.Join("/proc", itoa(pid), "exe"))
		log, logErr := os.Readlink(filepath.Join("/proc", itoa(pid), "fd", "2"))
		if err == nil && logErr == nil && filepath.Base(log) == daemon+".log" && strings.HasPrefix(daemon+"-", filepath.Base(binary)+"-") {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	t.Fatalf("%s does not run", daemon)
}

// killAll sends SIGKILL to each process of the cluster in dir.
func killAll(dir string) error {
	var errs []error
	for _, pid := range processesOf(dir) {
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// processesOf returns the processes of the cluster in dir, without zombies.
func processesOf(dir string) []int {
	var pids []int
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, path := range groups {
		content, _ := os.ReadFile(path)
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if strings.Contains(string(content), "/"+cluster.PrefixOf(dir)+"/") && !strings.Contains(string(status), "State:\tZ") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// traces lists everything on the machine that has a name of the cluster in dir.
func traces(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	add := func(kind, name string) { found = append(found, kind+" "+name) }
	for _, pid := range processesOf(dir) {
		add("process", itoa(pid))
	}
	namespaces, err := filepath.Glob("/run/netns/" + cluster.PrefixOf(dir) + "-*")
	require.NoError(t, err)
	for _, path := range namespaces {
		add("network namespace", path)
	}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/mountinfo"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range files {
			if content, _ := os.ReadFile(path); strings.Contains(string(content), dir+"/") {
				add("mention", path)
			}
		}
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == cluster.PrefixOf(dir) {
			add("cgroup", path)
		}
		return nil // other groups are created and removed meanwhile
	})
	require.NoError(t, err)
	if _, err := os.Stat(dir); err == nil {
		add("directory", dir)
	}
	return found
}

func itoa(n int) string { return strconv.Itoa(n) }
