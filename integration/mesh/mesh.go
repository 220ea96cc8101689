// Package mesh installs Akri on a cluster and looks at it the way a user does: with helm, kubectl and the API.
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
)

const (
	// Namespace that Akri is installed into.
	Namespace = "akri"
	// Release is the name of the helm release.
	Release = "akri"
	// DevTag is the tag of images that are built from this tree.
	DevTag = "dev"
)

// Mesh is Akri on a cluster.
type Mesh struct {
	Cluster        *cluster.Cluster
	Kubernetes     kubernetes.Interface
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	// Values of the chart for every Install, each as for --set.
	Values []string

	root string
	bin  string
}

// On returns Akri on the cluster, installed or not.
func On(ctx context.Context, c *cluster.Cluster) (*Mesh, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	bin, err := binaries.Ensure(ctx, func(string) {})
	if err != nil {
		return nil, err
	}
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	m := &Mesh{Cluster: c, root: root, bin: bin}
	if m.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if m.Configurations, err = kube.Configurations(config); err != nil {
		return nil, err
	}
	if m.Instances, err = kube.Instances(config); err != nil {
		return nil, err
	}
	return m, nil
}

// Bin is the folder of helm and kubectl.
func (m *Mesh) Bin() string { return m.bin }

// Path is a path of the source tree.
func (m *Mesh) Path(elements ...string) string {
	return filepath.Join(append([]string{m.root}, elements...)...)
}

// replacedWithin is how long pods may take to end.
const replacedWithin = time.Minute

// Install installs the umbrella chart, or brings it to the given values, and waits until every workload is ready, the pods that it
// replaced are gone, for which helm does not wait, and the API server reaches the one that reviews Configurations, which it may a
// moment after that is ready.
func (m *Mesh) Install(ctx context.Context, values ...string) error {
	arguments := []string{"upgrade", "--install", Release, m.Path("charts", "akri"), "--namespace", Namespace, "--create-namespace",
		"--wait", "--timeout", "3m", "--set", "global.image.tag=" + DevTag}
	for _, value := range slices.Concat(m.Values, values) {
		arguments = append(arguments, "--set", value)
	}
	if _, err := m.Helm(ctx, arguments...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replacedWithin)
	defer cancel()
	return errors.Join(m.awaitReplaced(ctx), m.AwaitReviews(ctx))
}

// AwaitReviews waits until Configurations can be applied: they are refused while the one that reviews them is away.
func (m *Mesh) AwaitReviews(ctx context.Context) error {
	manifest, err := m.Manifest("deploy", "samples", "debug-echo.yaml")
	if err != nil {
		return err
	}
	return Await(ctx, "a Configuration to be reviewed", func(ctx context.Context) error {
		_, err := m.Kubectl(ctx, manifest, "apply", "--dry-run=server", "-f", "-")
		return err
	})
}

func (m *Mesh) awaitReplaced(ctx context.Context) error {
	return Await(ctx, "replaced pods to be gone", func(ctx context.Context) error {
		pods, err := m.Kubernetes.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				return fmt.Errorf("%s is being deleted", pod.Name)
			}
		}
		return nil
	})
}

// Uninstall removes the release and waits until it is gone.
func (m *Mesh) Uninstall(ctx context.Context) error {
	_, err := m.Helm(ctx, "uninstall", Release, "--namespace", Namespace, "--wait", "--timeout", "3m", "--ignore-not-found")
	return err
}

// released is an image that a sample names: that of a release.
var released = regexp.MustCompile(`(ghcr\.io/akri-mesh/[a-z-]+):v[0-9.]+`)

// Apply applies a manifest file of the source tree, with this tree's images instead of released ones.
func (m *Mesh) Apply(ctx context.Context, file ...string) error {
	text, err := m.Manifest(file...)
	if err != nil {
		return err
	}
	return m.ApplyText(ctx, text)
}

// Manifest is a manifest file of the source tree, with this tree's images instead of released ones.
func (m *Mesh) Manifest(file ...string) (string, error) {
	text, err := os.ReadFile(m.Path(file...))
	if err != nil {
		return "", fmt.Errorf("read manifest: %w", err)
	}
	return released.ReplaceAllString(string(text), "$1:"+DevTag), nil
}

// ApplyText applies a manifest.
func (m *Mesh) ApplyText(ctx context.Context, manifest string) error {
	_, err := m.Kubectl(ctx, manifest, "apply", "-f", "-")
	return err
}

// DeleteText deletes what the manifest names and waits until it is gone.
func (m *Mesh) DeleteText(ctx context.Context, manifest string) error {
	_, err := m.Kubectl(ctx, manifest, "delete", "--ignore-not-found", "-f", "-")
	return err
}

// Helm runs helm on the cluster and returns what it prints.
func (m *Mesh) Helm(ctx context.Context, arguments ...string) (string, error) {
	return m.run(ctx, "helm", "", arguments...)
}

// Kubectl runs kubectl on the cluster and returns what it prints.
func (m *Mesh) Kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	return m.run(ctx, "kubectl", input, arguments...)
}

func (m *Mesh) run(ctx context.Context, program, input string, arguments ...string) (string, error) {
	var output, problems bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(m.bin, program), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+m.Cluster.Kubeconfig())
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &output, &problems
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, strings.TrimSpace(problems.String()))
	}
	return output.String(), nil
}
