package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
)

// freeConfiguration takes off the finalizers of Akri's agents, which are no more: the Configuration
// would hang in Terminating. What they held up is done by owner references here.
func (c *Controller) freeConfiguration(ctx context.Context, configuration *akriv0.Configuration) error {
	kept := slices.DeleteFunc(slices.Clone(configuration.Finalizers), ofAgent)
	if len(kept) == len(configuration.Finalizers) {
		return nil
	}
	// Bound to the version: somebody else may just be changing the list.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"finalizers": kept, "resourceVersion": configuration.ResourceVersion,
	}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	freed, err := c.Clients.Configurations.In(configuration.Namespace).Patch(ctx, configuration.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it changed, and comes back as a change
	}
	if err != nil {
		return fmt.Errorf("take finalizers off Configuration: %w", err)
	}
	c.fences.wrote(cluster.Key(freed.Namespace, freed.Name), c.Cache.Configurations.GetStore(), freed.ResourceVersion)
	c.Log.Info("took off the finalizers of Akri's agents", zap.String("configuration", configuration.Namespace+"/"+configuration.Name))
	return nil
}

// ofAgent says whether a finalizer is that of an agent: a bare node name. All others have a domain,
// save those of the garbage collector.
func ofAgent(finalizer string) bool {
	return !strings.Contains(finalizer, "/") && finalizer != metav1.FinalizerDeleteDependents && finalizer != metav1.FinalizerOrphanDependents
}
