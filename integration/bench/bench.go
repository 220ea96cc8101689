// Package bench measures latencies and the resource usage of an idle cluster, on a real cluster.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// Options of a run are the flags of akri-bench.
type Options struct {
	Dir    string `help:"Directory of the cluster, which is removed at the end." default:"/tmp/akri-bench" type:"path"`
	Rounds int    `help:"Number of hot-plug rounds." default:"30"`
	// Only selects one measurement: `brokers`, which needs no cluster, `idle`, the memory and CPU
	// time of idle services, `turnaround`, the time until the slot of a pod that ended is free,
	// `sharing`, the reservations, which needs no cluster, `dra`, device plugins and Dynamic
	// Resource Allocation, `failures`, the same during random failures, `dra-idle`, the memory of
	// the services of the latter, `scheduling`, the scheduler with both, which needs no cluster, or
	// `scale`, one instance-writer and many simulated nodes, which needs no cluster. Empty selects
	// all but `scale`.
	Only    string        `help:"Only measurement to run: brokers, dra, dra-idle, failures, idle, scale, scheduling, sharing or turnaround." enum:",brokers,dra,dra-idle,failures,idle,scale,scheduling,sharing,turnaround" default:""`
	Nodes   []int         `help:"Numbers of simulated nodes for scale." default:"100,500,1000"`
	Idle    time.Duration `help:"Time for which scale measures without changes." default:"12m"`
	Agent   bool          `help:"Simulate nodes with the agent in scale, which has one connection to instance-writer instead of two."`
	Profile string        `help:"Directory for CPU profiles of the scheduler, one for each case of scheduling." type:"existingdir"`
	// Out is for the results, Progress for the steps.
	Out      io.Writer `kong:"-"`
	Progress io.Writer `kong:"-"`
}

type bench struct {
	Options
	mesh *mesh.Mesh
}

// Run measures and prints Markdown.
func Run(ctx context.Context, options Options) (err error) {
	b := &bench{Options: options}
	switch options.Only { // those without a cluster
	case "brokers":
		return b.brokers(ctx)
	case "sharing":
		return b.sharing(ctx)
	case "scheduling":
		return b.scheduling(ctx)
	case "scale":
		return b.scales(ctx)
	}

	images, err := mesh.ImageFiles("")
	if err != nil {
		return err
	}
	running, err := cluster.Up(ctx, cluster.Config{Dir: options.Dir, Images: images, Progress: func(s string) { b.progress("%s", s) }})
	if err != nil {
		return fmt.Errorf("start cluster: %w", err)
	}
	defer func() { err = errors.Join(err, running.Down(context.WithoutCancel(ctx))) }()
	if b.mesh, err = mesh.New(ctx, running); err != nil {
		return err
	}

	b.mesh.Values = plugins.values() // measurements of another form state it

	b.progress("installing Akri")
	if err := b.mesh.Install(ctx, "opcua.discovery.enabled=true", "onvif.discovery.enabled=true"); err != nil {
		return err
	}

	switch options.Only {
	case "idle":
		idle, err := b.idle(ctx)
		if err != nil {
			return fmt.Errorf("measure the idle cluster: %w", err)
		}
		b.printUsage("Service, idle", idle.services...)
		return nil
	case "dra":
		return b.dra(ctx)
	case "dra-idle":
		return b.draIdle(ctx)
	case "failures":
		return b.failures(ctx)
	case "turnaround":
		took, err := b.turnaround(ctx)
		if err != nil {
			return fmt.Errorf("measure slot turnaround: %w", err)
		}
		b.printLatencies(latency{turnaroundRow, took})
		return nil
	}
	return b.measure(ctx)
}

func (b *bench) measure(ctx context.Context) error {
	plugged, err := b.hotPlug(ctx)
	if err != nil {
		return fmt.Errorf("measure hot-plug: %w", err)
	}
	idle, err := b.idle(ctx)
	if err != nil {
		return fmt.Errorf("measure the idle cluster: %w", err)
	}
	if plugged.sent, err = b.udevLists(ctx); err != nil {
		return fmt.Errorf("measure handler-udev: %w", err)
	}
	b.print(plugged, idle)

	hellos, err := b.hellos(ctx)
	if err != nil {
		return fmt.Errorf("measure Hello: %w", err)
	}
	turnarounds, err := b.turnaround(ctx)
	if err != nil {
		return fmt.Errorf("measure slot turnaround: %w", err)
	}
	brokers, kubelets, err := b.recovery(ctx)
	if err != nil {
		return fmt.Errorf("measure recovery: %w", err)
	}

	b.printLatencies(
		latency{"Hello of a camera → Instance seen by an API watch", hellos},
		latency{turnaroundRow, turnarounds},
		latency{"broker Pod deleted → next broker Pod seen", brokers},
		latency{"kubelet's device plugin socket created → resource offered", kubelets},
	)

	agent := func(ctx context.Context) error {
		if err := b.agent(ctx, idle.services); err != nil {
			return fmt.Errorf("measure the agent: %w", err)
		}
		return nil
	}
	for _, measure := range []func(context.Context) error{b.sharing, b.scheduling, b.brokers, agent, b.dra, b.failures, b.draIdle} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// deployment returns the manifest of a Deployment of the sample broker. The fields are those of its
// container, one each.
func deployment(name string, replicas int, nodeSelector string, fields ...string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {%[3]s}
      containers:
      - name: main
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        %[4]s
`, name, replicas, nodeSelector, strings.Join(fields, "\n        "))
}

// repeat measures count times. The timeout limits each time.
func repeat(
	ctx context.Context, count int, timeout time.Duration, measure func(context.Context) (time.Duration, error),
) (took []time.Duration, err error) {
	for range count {
		limited, cancel := context.WithTimeout(ctx, timeout)
		duration, err := measure(limited)
		cancel()
		if err != nil {
			return nil, err
		}
		took = append(took, duration)
	}
	return took, nil
}

// repeatWith is repeat with the objects of a manifest.
func (b *bench) repeatWith(
	ctx context.Context, manifest string, count int, measure func(context.Context) (time.Duration, error),
) ([]time.Duration, error) {
	if err := b.mesh.ApplyText(ctx, manifest); err != nil {
		return nil, err
	}
	took, err := repeat(ctx, count, roundTimeout, measure)
	if err != nil {
		return nil, err
	}
	return took, b.mesh.DeleteText(ctx, manifest)
}

func (b *bench) progress(format string, arguments ...any) {
	fmt.Fprintf(b.Progress, format+"\n", arguments...)
}
