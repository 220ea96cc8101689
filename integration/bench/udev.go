package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/libs/rpc"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/devices"
)

const udevRounds = 200

// deviceList is a list of handler-udev and its time of arrival.
type deviceList struct {
	at      time.Time
	devices []*discoveryv0.Device
}

// udevLists measures the time from the kernel's uevent to handler-udev's list with the device.
func (b *bench) udevLists(ctx context.Context) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	lists, err := b.watchUdev(ctx)
	if err != nil {
		return nil, err
	}
	uevents, err := devices.Uevents()
	if err != nil {
		return nil, err
	}
	defer uevents.Close()
	for range udevRounds {
		latency, err := udevRound(ctx, uevents, lists)
		if err != nil {
			return nil, err
		}
		took = append(took, latency)
	}
	b.progress("plugged a device in and out %d times to measure handler-udev", udevRounds)
	return took, nil
}

// watchUdev opens a Discover stream to the handler on the first node until ctx ends.
func (b *bench) watchUdev(ctx context.Context) (<-chan deviceList, error) {
	conn, err := rpc.Dial("unix://"+filepath.Join(b.mesh.Cluster.Nodes()[0].AkriDir(), "udev.sock"), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	stream, err := discoveryv0.NewDiscoveryHandlerClient(conn).Discover(ctx, &discoveryv0.DiscoverRequest{
		DiscoveryDetails: `udevRules: ['SUBSYSTEM=="block", KERNEL=="zram[1-9]*"']`,
	})
	if err != nil {
		return nil, fmt.Errorf("discover: %w", err)
	}
	lists := make(chan deviceList, 100)
	go func() {
		defer close(lists)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			lists <- deviceList{time.Now(), response.GetDevices()}
		}
	}()
	return lists, nil
}

func udevRound(ctx context.Context, uevents *devices.UeventSocket, lists <-chan deviceList) (_ time.Duration, err error) {
	zram, err := devices.PlugZram(ctx, "bench")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, zram.Unplug(ctx)) }()
	plugged, err := uevents.Await(ctx, "add", zram.DevPath())
	if err != nil {
		return 0, err
	}
	sent, err := awaitList(ctx, lists, zram.DevPath(), true)
	if err != nil {
		return 0, err
	}
	if err := zram.Unplug(ctx); err != nil {
		return 0, err
	}
	_, err = awaitList(ctx, lists, zram.DevPath(), false)
	return sent.Sub(plugged), err
}

// awaitList waits for a list with or without the device and returns its time.
func awaitList(ctx context.Context, lists <-chan deviceList, id string, has bool) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for a list of handler-udev: %w", ctx.Err())
		case next, open := <-lists:
			if !open {
				return time.Time{}, errors.New("handler-udev ended its stream")
			}
			if slices.ContainsFunc(next.devices, func(d *discoveryv0.Device) bool { return d.GetId() == id }) == has {
				return next.at, nil
			}
		}
	}
}
