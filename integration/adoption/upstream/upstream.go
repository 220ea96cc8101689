// Package upstream has stand-ins for the agent, the controller and two handlers of upstream Akri
// 0.13.26, whose binaries are not available where the tests of this project run. They speak the
// same protocols with handlers, kubelet and API server, and write the same objects in the same way,
// so that a test can move a cluster from upstream Akri to this project. TestStandIns compares their
// objects with those that upstream Akri wrote.
//
// Also upstream's defects are here that a move meets: an agent that starts removes the Instances of
// its node, a slot once reserved is not released, edits of a Configuration have no effect, and no
// process ends on SIGTERM. Left out is what a move does not need: metrics, the release of slots of
// ended Pods, Secrets and ConfigMaps in discoveryProperties, the removal of a node that is not
// ready, and the webhook.
package upstream

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// group is the name that upstream Akri uses for API group, labels and resources.
const group = "akri.sh"

// Main runs a stand-in until it fails. It ignores SIGTERM as the processes of upstream Akri do:
// they do not handle the signal, and its default action has no effect on the first process of a
// container. The kubelet kills them 30 s after the deletion of their Pods.
func Main(run func(*zap.Logger) error) {
	signal.Ignore(syscall.SIGTERM)
	log, err := zap.NewProduction()
	if err == nil {
		err = run(log)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// RESTConfig returns the access to the API server: that of KUBECONFIG, or the service account of
// the Pod.
func RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("load API server access: %w", err)
	}
	config.QPS = -1
	return config, nil
}
