package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/devices/onvif"
)

const (
	onvifConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-onvif, namespace: default}
spec:
  discoveryHandler: {name: onvif, discoveryDetails: 'identity: uuid'}
`
	firstPort    = 8000
	warmUpRounds = 2
)

// hellos measures the time from a camera's Hello to its Instance. The first cameras are not
// counted, because probes may find them.
func (b *bench) hellos(ctx context.Context) (took []time.Duration, err error) {
	b.progress("measuring the time from Hello to Instance of %d cameras", b.Rounds)
	cameras, err := onvif.StartOn(ctx, b.mesh.Cluster, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cameras.Stop()) }()
	instances, err := b.mesh.Instances.In("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch Instances: %w", err)
	}
	defer instances.Stop()
	number := 0
	took, err = b.repeatWith(ctx, onvifConfiguration, b.Rounds+warmUpRounds, func(ctx context.Context) (time.Duration, error) {
		camera := onvif.Make(number, netip.AddrPortFrom(cameras.Address, firstPort+uint16(number)))
		number++
		return hello(ctx, cameras, instances, camera)
	})
	if err != nil {
		return nil, err
	}
	return took[warmUpRounds:], nil
}

func hello(ctx context.Context, fleet *onvif.Fleet, instances watch.Interface, camera *onvif.Camera) (time.Duration, error) {
	if err := fleet.Plug(camera); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := fleet.Hello(camera); err != nil {
		return 0, err
	}
	name := akriv0.InstanceName("bench-onvif", akriv0.Digest(camera.UUID, "", true))
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for Instance %s: %w", name, ctx.Err())
		case event := <-instances.ResultChan():
			if instance, ok := event.Object.(*akriv0.Instance); ok && instance.Name == name {
				return time.Since(start), nil
			}
		}
	}
}
