package command

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/check"
)

// nodeRestriction probes one of the nodes, if Akri is installed. All nodes have the same rights.
func (o *options) nodeRestriction(ctx context.Context, s *explain.Snapshot) (check.NodeRestriction, error) {
	if len(s.Deployments) == 0 || len(s.Nodes) == 0 {
		return check.NodeRestriction{Unknown: "you may not list Nodes and the Deployments of Akri"}, nil
	}
	config, _, err := o.restConfig()
	if err != nil {
		return check.NodeRestriction{}, err
	}
	return probeNodeRestriction(ctx, config, s.Nodes[0].Name), nil
}

// probeNodeRestriction asks the API server, in dry runs as the kubelet of the node, to set a label
// that no kubelet may set if the admission plug-in NodeRestriction is enabled. Nothing is stored.
// Before that it sets another label. If that is refused, too, the reason is not the label: for
// example, the user may not impersonate nodes, or kubelets have other identities.
func probeNodeRestriction(ctx context.Context, config *rest.Config, node string) check.NodeRestriction {
	if config.Impersonate.UserName != "" {
		return check.NodeRestriction{Unknown: "only a user who is not impersonated (--as) can impersonate a kubelet"}
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return check.NodeRestriction{Unknown: err.Error()}
	}
	label := func(key string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"probe"}}}`, key)
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}

	if err := label(akriv0.Group + "/probe"); err != nil {
		return check.NodeRestriction{Unknown: err.Error()}
	}
	switch err := label(akriv0.NodeRestrictionPrefix + "akri-probe"); {
	case err == nil:
		return check.NodeRestriction{}
	case apierrors.IsForbidden(err):
		return check.NodeRestriction{Enforced: true}
	default:
		return check.NodeRestriction{Unknown: err.Error()}
	}
}
