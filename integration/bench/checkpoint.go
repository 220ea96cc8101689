package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"akri.sh/integration/cluster"
)

// checkpointInterval is the resolution of the times of checkpoints.
const checkpointInterval = time.Millisecond

// offers records when a kubelet first offers a resource. The kubelet writes the devices of its
// plugins to its checkpoint before it uses them, and before any API of the kubelet shows them.
type offers struct {
	seen sync.Map // of time.Time by resource
}

// watchCheckpoints reads the checkpoints of all kubelets until ctx ends. It does not record
// resources that are in them when it returns.
func (b *bench) watchCheckpoints(ctx context.Context) *offers {
	o := &offers{}
	for _, node := range b.mesh.Cluster.Nodes() {
		file := checkpoint(node)
		last, _ := os.Stat(file) // nil if the file does not exist yet
		go o.watch(ctx, file, last, registered(file))
	}
	return o
}

func checkpoint(node cluster.Node) string {
	return filepath.Join(node.KubeletDir(), "device-plugins", "kubelet_internal_checkpoint")
}

// offered reports whether a kubelet offers any of the resources.
func (b *bench) offered(resources []string) bool {
	for _, node := range b.mesh.Cluster.Nodes() {
		devices := registered(checkpoint(node))
		if slices.ContainsFunc(resources, func(resource string) bool { return len(devices[resource]) > 0 }) {
			return true
		}
	}
	return false
}

func (o *offers) watch(ctx context.Context, file string, last os.FileInfo, before map[string][]string) {
	for ctx.Err() == nil {
		// Each write creates another file, possibly with the modification time of the previous one.
		if info, err := os.Stat(file); err == nil && (last == nil || !os.SameFile(info, last) || info.ModTime() != last.ModTime()) {
			now, offered := time.Now(), registered(file)
			for resource, ids := range offered {
				if len(ids) > 0 && len(before[resource]) == 0 {
					o.seen.Store(resource, now)
				}
			}
			last, before = info, offered
		}
		_ = cluster.Pause(ctx, checkpointInterval) // the loop ends with ctx
	}
}

func registered(file string) map[string][]string {
	var checkpoint struct {
		Data struct {
			RegisteredDevices map[string][]string
		}
	}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &checkpoint) != nil {
		return nil // the file is being replaced; the next read returns its content
	}
	return checkpoint.Data.RegisteredDevices
}

func (o *offers) await(ctx context.Context, resource string) (at time.Time, err error) {
	err = cluster.Wait(ctx, checkpointInterval, func() error {
		seen, ok := o.seen.Load(resource)
		if !ok {
			return fmt.Errorf("no kubelet offers %s", resource)
		}
		at = seen.(time.Time)
		return nil
	})
	return at, err
}
