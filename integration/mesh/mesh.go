// Package mesh installs Akri on a cluster and reads its state as a user does: with helm, kubectl
// and the API.
package mesh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
)

const (
	// Namespace that Akri is installed into, as in the documents.
	Namespace = "akri-system"
	// Release is the name of the helm release.
	Release = "akri"
	// DevTag is the tag of images built from this source tree.
	DevTag = "dev"
)

// Clients of an API server.
type Clients struct {
	Kubernetes     kubernetes.Interface
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
}

// NewClients returns the clients of an API server.
func NewClients(config *rest.Config) (c Clients, err error) {
	if c.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("create client: %w", err)
	}
	if c.Configurations, err = kube.Configurations(config); err != nil {
		return c, err
	}
	c.Instances, err = kube.Instances(config)
	return c, err
}

// Mesh is Akri on a cluster.
type Mesh struct {
	Clients
	Cluster *cluster.Cluster
	// Values are chart values for all installations, each as for --set.
	Values []string
	// Root is the directory of charts and samples: the source tree, or a copy.
	Root string
	// Held are files that helm and kubectl keep open as long as they run, such as a lock.
	Held []*os.File

	bin string
}

// New returns Akri on the cluster, which need not be installed yet.
func New(ctx context.Context, c *cluster.Cluster) (*Mesh, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	bin, err := binaries.Ensure(ctx, nil, "helm", "kubectl")
	if err != nil {
		return nil, err
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	clients, err := NewClients(config)
	if err != nil {
		return nil, err
	}
	return &Mesh{Clients: clients, Cluster: c, Root: root, bin: bin}, nil
}

// Bin is the directory of helm and kubectl.
func (m *Mesh) Bin() string { return m.bin }

// Path returns a path below Root.
func (m *Mesh) Path(elements ...string) string {
	return filepath.Join(append([]string{m.Root}, elements...)...)
}

// replaceTimeout limits the wait for replaced pods to end.
const replaceTimeout = time.Minute

// Install installs the umbrella chart, or upgrades it to the given values, and waits until all
// workloads are ready. It fails if the webhook is not in force when helm returns. It also waits for
// the end of replaced pods, for which helm does not wait.
func (m *Mesh) Install(ctx context.Context, values ...string) error {
	arguments := []string{"upgrade", "--install", Release, m.Path("charts", "akri"), "--namespace", Namespace, "--create-namespace",
		"--wait", "--timeout", "3m", "--set", "global.image.tag=" + DevTag}
	for _, value := range slices.Concat(m.Values, values) {
		arguments = append(arguments, "--set", value)
	}
	if _, err := m.Helm(ctx, arguments...); err != nil {
		return err
	}
	if !slices.Contains(values, WithoutWebhook) {
		if err := m.requireWebhook(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	return m.awaitReplaced(ctx)
}

// WithoutWebhook is the chart value that disables the webhook.
const WithoutWebhook = "broker-controller.webhook.enabled=false"

const invalidConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: invalid, namespace: default}
spec:
  discoveryHandler: {name: debugEcho}
  brokerSpec: {brokerPodSpec: {containers: []}}
`

// requireWebhook returns an error if an invalid Configuration is accepted.
func (m *Mesh) requireWebhook(ctx context.Context) error {
	_, err := m.Kubectl(ctx, invalidConfiguration, "apply", "--dry-run=server", "-f", "-")
	if err == nil {
		return errors.New("an invalid Configuration is accepted after the installation")
	}
	if !strings.Contains(err.Error(), "must have at least one container") {
		return fmt.Errorf("apply an invalid Configuration: %w", err)
	}
	return nil
}

// AwaitWebhook waits until the webhook decides about Configurations: the API server rejects all of
// them while the webhook is unavailable, or accepts all of them while it is new.
func (m *Mesh) AwaitWebhook(ctx context.Context) error {
	manifest, err := m.Manifest("deploy", "samples", "debug-echo.yaml")
	if err != nil {
		return err
	}
	return Await(ctx, "response of the webhook", func(ctx context.Context) error {
		if _, err := m.Kubectl(ctx, manifest, "apply", "--dry-run=server", "-f", "-"); err != nil {
			return err
		}
		return m.requireWebhook(ctx)
	})
}

func (m *Mesh) awaitReplaced(ctx context.Context) error {
	pods := m.Kubernetes.CoreV1().Pods(Namespace)
	return AwaitObjects(ctx, "end of replaced pods", pods, metav1.ListOptions{}, func(found []corev1.Pod) error {
		for _, pod := range found {
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("%s is being deleted", pod.Name)
			}
		}
		return nil
	})
}

// Uninstall removes the release and waits until it is removed. It returns the text that helm shows.
func (m *Mesh) Uninstall(ctx context.Context) (string, error) {
	command := m.command(ctx, "helm", "uninstall", Release, "--namespace", Namespace, "--wait", "--timeout", "3m", "--ignore-not-found")
	text, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("helm uninstall: %w: %s", err, bytes.TrimSpace(text))
	}
	return string(text), nil
}

// releasedImage matches the images in samples, which are those of a release.
var releasedImage = regexp.MustCompile(`(ghcr\.io/akri-mesh/[a-z-]+):v[0-9.]+`)

// Apply applies a manifest file of the source tree with images built from it.
func (m *Mesh) Apply(ctx context.Context, file ...string) error {
	text, err := m.Manifest(file...)
	if err != nil {
		return err
	}
	return m.ApplyText(ctx, text)
}

// Manifest returns a manifest file of the source tree with images built from it.
func (m *Mesh) Manifest(file ...string) (string, error) {
	text, err := os.ReadFile(m.Path(file...))
	if err != nil {
		return "", fmt.Errorf("read manifest: %w", err)
	}
	return releasedImage.ReplaceAllString(string(text), "$1:"+DevTag), nil
}

// ApplyText applies a manifest.
func (m *Mesh) ApplyText(ctx context.Context, manifest string) error {
	_, err := m.Kubectl(ctx, manifest, "apply", "-f", "-")
	return err
}

// DeleteText deletes the objects of a manifest and waits until they are deleted.
func (m *Mesh) DeleteText(ctx context.Context, manifest string) error {
	_, err := m.Kubectl(ctx, manifest, "delete", "--ignore-not-found", "-f", "-")
	return err
}

// Helm runs helm and returns its output.
func (m *Mesh) Helm(ctx context.Context, arguments ...string) (string, error) {
	return m.run(ctx, "helm", "", arguments...)
}

// Helm3 runs the previous major version of helm and returns its output.
func (m *Mesh) Helm3(ctx context.Context, arguments ...string) (string, error) {
	if _, err := binaries.Ensure(ctx, nil, "helm-3"); err != nil {
		return "", err
	}
	return m.run(ctx, "helm-3", "", arguments...)
}

// Kubectl runs kubectl with the input and returns its output.
func (m *Mesh) Kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	return m.run(ctx, "kubectl", input, arguments...)
}

func (m *Mesh) run(ctx context.Context, name, input string, arguments ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := m.command(ctx, name, arguments...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// interruptGrace is the time in which an interrupted command must end. helm records in it that the
// operation has failed.
const interruptGrace = 10 * time.Second

// command returns a command that is interrupted when the context ends.
func (m *Mesh) command(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(m.bin, name), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+m.Cluster.Kubeconfig())
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = interruptGrace
	command.ExtraFiles = m.Held
	return command
}
