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

// lookEvery is the resolution of what the checkpoints tell.
const lookEvery = time.Millisecond

// offers notes when a kubelet first offers a resource. The kubelet writes what device plugins told it to its checkpoint
// before it acts on it; no API of its shows that sooner.
type offers struct {
	mu   sync.Mutex
	seen stamps
}

// watchCheckpoints looks at every node's kubelet until ctx ends; what they offer already when it returns is not noted.
func (b *bench) watchCheckpoints(ctx context.Context) *offers {
	o := &offers{seen: stamps{}}
	for _, node := range b.mesh.Cluster.Nodes() {
		file := checkpoint(node)
		last, _ := os.Stat(file) // nil: it is not there yet
		go o.watch(ctx, file, last, registered(file))
	}
	return o
}

func checkpoint(node cluster.Node) string {
	return filepath.Join(node.KubeletDir(), "device-plugins", "kubelet_internal_checkpoint")
}

// offered says whether a kubelet offers any of the resources.
func (b *bench) offered(resources []string) bool {
	for _, node := range b.mesh.Cluster.Nodes() {
		now := registered(checkpoint(node))
		if slices.ContainsFunc(resources, func(resource string) bool { return len(now[resource]) > 0 }) {
			return true
		}
	}
	return false
}

func (o *offers) watch(ctx context.Context, file string, last os.FileInfo, before map[string][]string) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		// Every write is another file; two within a tick of the kernel's clock have the same time.
		if info, err := os.Stat(file); err == nil && (last == nil || !os.SameFile(info, last) || info.ModTime() != last.ModTime()) {
			now, offered := time.Now(), registered(file)
			for resource, ids := range offered {
				if len(ids) > 0 && len(before[resource]) == 0 {
					o.note(resource, now)
				}
			}
			last, before = info, offered
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func registered(file string) map[string][]string {
	var checkpoint struct {
		Data struct {
			RegisteredDevices map[string][]string
		}
	}
	if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &checkpoint) != nil {
		return nil // being replaced: the next look sees it
	}
	return checkpoint.Data.RegisteredDevices
}

func (o *offers) note(resource string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[resource] = at
}

func (o *offers) await(ctx context.Context, resource string) (time.Time, error) {
	for {
		o.mu.Lock()
		at, ok := o.seen[resource]
		o.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("no kubelet offers %s: %w", resource, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}
