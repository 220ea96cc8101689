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
	firstPort = 8000
	uncounted = 2
)

// hellos measures from a camera's Hello until a watch shows its Instance. The first cameras do not count: probes may find them.
func (b *bench) hellos(ctx context.Context) (took []time.Duration, err error) {
	b.say("measuring how soon %d cameras that say Hello are Instances", b.Rounds)
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
	if err := b.mesh.ApplyText(ctx, onvifConfiguration); err != nil {
		return nil, err
	}
	for round := range b.Rounds + uncounted {
		one, err := hello(ctx, cameras.Fleet, instances, onvif.Make(round, netip.AddrPortFrom(cameras.Address, firstPort+uint16(round))))
		if err != nil {
			return nil, err
		}
		if round >= uncounted {
			took = append(took, one)
		}
	}
	return took, b.mesh.DeleteText(ctx, onvifConfiguration)
}

func hello(ctx context.Context, fleet *onvif.Fleet, instances watch.Interface, camera *onvif.Camera) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, roundWithin)
	defer cancel()
	if err := fleet.Plug(camera); err != nil {
		return 0, err
	}
	said := time.Now()
	if err := fleet.Hello(camera); err != nil {
		return 0, err
	}
	name := akriv0.InstanceName("bench-onvif", akriv0.Digest(camera.UUID, "", true))
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("await Instance %s: %w", name, ctx.Err())
		case event := <-instances.ResultChan():
			if instance, ok := event.Object.(*akriv0.Instance); ok && instance.Name == name {
				return time.Since(said), nil
			}
		}
	}
}
