package controller

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"akri.sh/libs/kube"
	"akri.sh/services/dra-controller/internal/desired"
)

// featuresInterval is the time between two attempts to read the features.
const featuresInterval = time.Second

// awaitFeatures sets the features of the API server. It fails only if ctx ends.
func (c *controller) awaitFeatures(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, featuresInterval, true, func(ctx context.Context) (done bool, _ error) {
		var err error
		if c.features, err = ReadFeatures(ctx, c.Cache.ClassClient, c.Cache.SliceClient); err != nil {
			c.Log.Warn("reading the features of the API server failed, retrying", zap.Error(err))
			return false, nil
		}
		c.Log.Info("publishing devices", zap.Bool("consumable_capacity", c.features.ConsumableCapacity),
			zap.Bool("extended_resources", c.features.ExtendedResources), zap.Bool("taints", c.features.Taints))
		return true, nil
	})
}

type (
	classClient = kube.Client[*resourcev1.DeviceClass, *resourcev1.DeviceClassList]
	sliceClient = kube.Client[*resourcev1.ResourceSlice, *resourcev1.ResourceSliceList]
)

// ReadFeatures returns what the API server keeps of objects that use all features. It does not
// store them.
func ReadFeatures(ctx context.Context, classes *classClient, slices *sliceClient) (desired.Features, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	class, slice := desired.Probes()
	class, err := classes.In(metav1.NamespaceNone).Create(ctx, class, dryRun)
	if err != nil {
		return desired.Features{}, fmt.Errorf("create DeviceClass: %w", err)
	}
	slice, err = slices.In(metav1.NamespaceNone).Create(ctx, slice, dryRun)
	if err != nil {
		return desired.Features{}, fmt.Errorf("create ResourceSlice: %w", err)
	}
	return desired.FeaturesOf(class, slice), nil
}
