package command

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/tools/kubectl-akri/check"
)

// readResources reads how Pods get devices, if the cluster decides it.
func readResources(ctx context.Context, client *cluster.Client, facts *check.Facts) error {
	record, err := client.Kubernetes.CoreV1().ConfigMaps(facts.Namespace).Get(ctx, akriv0.ResourcesConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("read how Pods get devices: %w", err)
	}
	facts.Resources = map[string]string{}
	for key, value := range record.Data {
		facts.Resources[key] = akriv0.Escape(value)
	}
	facts.HasDRA = hasDRA(ctx, client)
	return nil
}

// hasDRA reports whether the API server keeps the fields of the features that Akri needs, of
// objects that it does not store. It is false if the user may not create such objects.
func hasDRA(ctx context.Context, client *cluster.Client) bool {
	dryRun, meta := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ObjectMeta{GenerateName: "akri-check-"}
	// The policies of the chart refuse objects of the driver akri.sh.
	const driver = "check." + akriv0.Driver
	class, err := client.Kubernetes.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{
		ObjectMeta: meta, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(driver + "/check")},
	}, dryRun)
	if err != nil || class.Spec.ExtendedResourceName == nil {
		return false
	}
	slice, err := client.Kubernetes.ResourceV1().ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{
		ObjectMeta: meta,
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "check", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{
				Name: "check", AllowMultipleAllocations: new(true),
				Taints: []resourcev1.DeviceTaint{{Key: driver, Effect: resourcev1.DeviceTaintEffectNoSchedule}},
			}},
		},
	}, dryRun)
	return err == nil && slice.Spec.Devices[0].AllowMultipleAllocations != nil && len(slice.Spec.Devices[0].Taints) > 0
}
