package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"akri.sh/integration/cluster"
)

const podResourcesTimeout = time.Second

// AwaitOffered waits until the kubelet can allocate devices of the resource, including the given
// ids.
func AwaitOffered(ctx context.Context, node cluster.Node, resource string, ids ...string) error {
	address := "unix://" + filepath.Join(node.KubeletDir(), "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("dial kubelet: %w", err)
	}
	defer conn.Close()
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	return Await(ctx, "kubelet to offer "+resource, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, podResourcesTimeout)
		defer cancel()
		response, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		var offered []string
		for _, devices := range response.GetDevices() {
			if devices.GetResourceName() == resource {
				offered = append(offered, devices.GetDeviceIds()...)
			}
		}
		if len(offered) == 0 || slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(offered, id) }) {
			return fmt.Errorf("the kubelet offers %v", offered)
		}
		return nil
	})
}

// RestartKubelet restarts the kubelet of the node and returns the time from its new device plugin
// socket until it offers the resource again.
func RestartKubelet(ctx context.Context, node cluster.Node, resource string) (time.Duration, error) {
	if err := node.StopKubelet(ctx); err != nil {
		return 0, err
	}
	socket := filepath.Join(node.KubeletDir(), "device-plugins", "kubelet.sock")
	if err := os.RemoveAll(socket); err != nil {
		return 0, fmt.Errorf("remove socket: %w", err)
	}
	var took time.Duration
	offered := make(chan error, 1)
	go func() {
		err := Await(ctx, "socket of the kubelet", func(context.Context) error {
			_, err := os.Stat(socket)
			return err
		})
		start := time.Now()
		if err == nil {
			err = AwaitOffered(ctx, node, resource)
		}
		took = time.Since(start)
		offered <- err
	}()
	err := errors.Join(node.StartKubelet(ctx), <-offered)
	return took, err
}
