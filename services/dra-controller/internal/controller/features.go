package controller

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"akri.sh/services/dra-controller/internal/desired"
)

// featuresInterval is the time between two attempts to read the features.
const featuresInterval = time.Second

// awaitFeatures sets the features of the API server. It fails only if ctx ends.
func (c *controller) awaitFeatures(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, featuresInterval, true, func(ctx context.Context) (done bool, _ error) {
		var err error
		if c.features, err = c.readFeatures(ctx); err != nil {
			c.Log.Warn("reading the features of the API server failed, retrying", zap.Error(err))
			return false, nil
		}
		c.Log.Info("publishing devices", zap.Bool("consumable_capacity", c.features.ConsumableCapacity),
			zap.Bool("extended_resources", c.features.ExtendedResources), zap.Bool("taints", c.features.Taints))
		return true, nil
	})
}

// readFeatures returns what the API server keeps of objects that use all features. It does not
// store them.
func (c *controller) readFeatures(ctx context.Context) (desired.Features, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	class, slice := desired.Probes()
	class, err := c.Cache.ClassClient.In(metav1.NamespaceNone).Create(ctx, class, dryRun)
	if err != nil {
		return desired.Features{}, fmt.Errorf("create DeviceClass: %w", err)
	}
	slice, err = c.Cache.SliceClient.In(metav1.NamespaceNone).Create(ctx, slice, dryRun)
	if err != nil {
		return desired.Features{}, fmt.Errorf("create ResourceSlice: %w", err)
	}
	return desired.FeaturesOf(class, slice), nil
}
