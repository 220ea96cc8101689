package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// leaseName is the name of the Lease that all replicas share. The chart creates it.
	leaseName = "akri-instance-writer"
	// valuePrefix is the prefix of the annotation with the value of a replica.
	valuePrefix = "replica.akri.sh/"
)

// ShareValue writes the value of this replica to the Lease of all replicas, deletes the values of
// other replicas, and returns the remaining values by replica.
func (c *Cluster) ShareValue(ctx context.Context, replica, value string, deleted []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	annotations := map[string]*string{valuePrefix + replica: &value}
	for _, other := range deleted {
		annotations[valuePrefix+other] = nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations}, "spec": map[string]any{"renewTime": metav1.NowMicro()},
	})
	if err != nil {
		return nil, fmt.Errorf("encode Lease: %w", err)
	}
	lease, err := c.leaseClient.In(c.namespace).Patch(ctx, leaseName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("update Lease %s/%s: %w", c.namespace, leaseName, err)
	}
	values := map[string]string{}
	for key, value := range lease.Annotations {
		if replica, ok := strings.CutPrefix(key, valuePrefix); ok {
			values[replica] = value
		}
	}
	return values, nil
}
