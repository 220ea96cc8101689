package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
)

func (o *options) watch() *cobra.Command {
	return o.withAllNamespaces(&cobra.Command{
		Use: "watch", Short: "Shows devices that come and go, until it is interrupted.", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, namespace, err := o.connect()
			if err != nil {
				return err
			}
			return follow(c.Context(), c.OutOrStdout(), client, o.namespace(namespace))
		},
	})
}

// follow writes a line for each change until ctx ends. client-go's reflector repeats lists and
// watches that end.
func follow(ctx context.Context, w io.Writer, client *cluster.Client, namespace string) error {
	instances := client.Instances.In(namespace)
	// A first list shows an error at once. The reflector would retry.
	if _, err := instances.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	changes := &changes{w: w, now: time.Now, known: map[types.NamespacedName]status.Device{}}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return instances.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return instances.Watch(ctx, options)
			},
		},
		ObjectType: &akriv0.Instance{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changes.set(object) },
			UpdateFunc: func(_, object any) { changes.set(object) },
			DeleteFunc: func(object any) { changes.remove(object) },
		},
	})
	informer.RunWithContext(ctx)
	return nil
}

// changes writes the differences between the devices that it has seen.
type changes struct {
	w     io.Writer
	now   func() time.Time
	known map[types.NamespacedName]status.Device
}

func (c *changes) set(object any) {
	instance, ok := object.(*akriv0.Instance)
	if !ok {
		return
	}
	name := types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name}
	device := status.DeviceOf(instance)
	old, isKnown := c.known[name]
	c.known[name] = device
	switch {
	case !isKnown:
		c.write("+", device, "on "+nodesOf(device))
	case !slices.Equal(old.Nodes, device.Nodes):
		c.write("~", device, "on "+nodesOf(device)+", before on "+nodesOf(old))
	case old.Slots != device.Slots:
		c.write("~", device, fmt.Sprintf("%d of %s held, before %d", device.Slots.Used, explain.Plural(device.Slots.Total, "slot"), old.Slots.Used))
	}
}

func (c *changes) remove(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	instance, ok := object.(*akriv0.Instance)
	if !ok {
		return
	}
	delete(c.known, types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name})
	c.write("-", status.DeviceOf(instance), "was on "+nodesOf(status.DeviceOf(instance)))
}

func (c *changes) write(sign string, device status.Device, text string) {
	fmt.Fprintf(c.w, "%s %s %s/%s %q %s\n", c.now().Format(time.TimeOnly), sign, device.Namespace, device.Instance, device.ID, text)
}

func nodesOf(device status.Device) string {
	if len(device.Nodes) == 0 {
		return "no node"
	}
	return strings.Join(device.Nodes, ", ")
}
