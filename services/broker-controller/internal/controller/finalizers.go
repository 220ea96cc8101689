package controller

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
)

// removeAgentFinalizers removes the finalizers of upstream Akri's agents, which would block the
// deletion of the Configuration. Owner references replace them.
func (c *Controller) removeAgentFinalizers(ctx context.Context, configuration *akriv0.Configuration) error {
	patch := akriv0.AgentFinalizersPatch(configuration)
	if patch == nil {
		return nil
	}
	client := c.Clients.Configurations.In(configuration.Namespace)
	patched, err := client.Patch(ctx, configuration.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the change arrives through the cache
	}
	if err != nil {
		return fmt.Errorf("remove finalizers from Configuration: %w", err)
	}
	c.expectations.Expect(cluster.Key(patched.Namespace, patched.Name), c.Cache.Configurations.GetStore(), patched.ResourceVersion)
	c.Log.Info("removed upstream Akri's finalizers", zap.String("configuration", configuration.Namespace+"/"+configuration.Name))
	return nil
}
