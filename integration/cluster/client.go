package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"akri.sh/integration/cluster/binaries"
)

// Kubeconfig is the path of a kubeconfig with all rights, for the machine's network namespace.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// RESTConfig returns a client configuration with all rights, without client-go's limit of 5
// requests a second.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 500, 1000
	return config, nil
}

// Kubectl returns a kubectl command with all rights. It uses the binary in the project's cache, or
// the one in PATH if the cache has none, as it may be with an external cluster.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	path, err := binaries.Path("kubectl")
	if err != nil {
		path = "kubectl"
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	return cmd
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return client, nil
}
