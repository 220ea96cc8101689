package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/dra-controller/internal/desired"
)

// roleName is the name of the ClusterRole of the chart that owns the DeviceClass for all devices.
const roleName = "akri-dra-controller"

// InUse reports whether Dynamic Resource Allocation is used, as the cluster has decided it: by
// default, or on a node.
func InUse(nodes []*corev1.Node, recorded string) bool {
	return recorded == akriv0.ResourcesDRA || slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		return akriv0.ResourcesOf(node, recorded) == akriv0.ResourcesDRA
	})
}

// usesDRA reports whether Pods on the node get devices by Dynamic Resource Allocation.
func (c *controller) usesDRA(node *corev1.Node) bool {
	if c.Record == nil {
		return desired.UsesDRA(node)
	}
	return akriv0.ResourcesOf(node, c.Record.Resources()) == akriv0.ResourcesDRA
}

// reconcileRoot creates the DeviceClass that owns all other objects while Dynamic Resource
// Allocation is used, and removes it otherwise. If the cluster does not decide that, the chart
// creates it.
func (c *controller) reconcileRoot(ctx context.Context) error {
	if c.Record == nil {
		return nil
	}
	current, exists := c.Cache.Root.Get(akriv0.Driver)
	switch inUse := InUse(c.Cache.Nodes.List(), c.Record.Resources()); {
	case inUse && !exists:
		role, err := c.Cache.RoleClient.In(metav1.NamespaceNone).Get(ctx, roleName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get the owner of the DeviceClass: %w", err)
		}
		_, err = c.root.create(ctx, desired.Root(role))
		return err
	case !inUse && exists:
		return c.root.remove(ctx, current)
	default:
		return nil
	}
}
