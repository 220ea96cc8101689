// Package soak runs Akri on a real cluster for a long time while devices, Configurations and Pods
// change and processes are killed. It checks invariants all the time, compares the cluster with a
// model in quiet phases, and measures what must not grow.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// Options of a run are the flags of akri-soak.
type Options struct {
	Dir  string `help:"Directory of the cluster, which is removed at the end." default:"/tmp/akri-soak" type:"path"`
	Logs string `help:"Directory of the logs of Akri and of the actions, which is emptied first." default:"/tmp/akri-soak-logs" type:"path"`
	// Images is the directory of the images. Empty: that of `make images`.
	Images string `kong:"-"`
	// Duration is the time of the changes and quiet phases, without the start of the cluster.
	Duration time.Duration `help:"Duration of the run." default:"1h"`
	Churn    time.Duration `help:"Time of changes between two quiet phases." default:"1m"`
	Settle   time.Duration `help:"Maximum time until the state is that of the model." default:"3m"`
	Form     string        `help:"Form of the node services: services or agent." enum:"services,agent" default:"services"`
	Nodes    []string      `help:"Names of the nodes, at least two." default:"node-a,node-b"`
	Zram     int           `help:"Number of zram devices, which all clusters of the machine see." default:"2"`
	// Seed selects the changes. Their times differ between two runs.
	Seed uint64 `help:"Seed of the changes. 0: a random one."`
	// Growth makes slopes over their limits errors.
	Growth bool `kong:"-"`
	// Out is for the results, Progress for the steps.
	Out      io.Writer `kong:"-"`
	Progress io.Writer `kong:"-"`
}

const (
	measureInterval, progressInterval = 5 * time.Second, 10 * time.Second
	restartInterval                   = 5 * time.Second
	// quietSamples is the number of samples of a quiet phase.
	quietSamples, quietInterval = 5, 2 * time.Second
	// fastKubelet has the settings that device-plugin-host's README recommends.
	fastKubelet = "nodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m"
)

type soak struct {
	Options
	*watcher
	*measurements
	model  *model
	locals map[string]*localDevices
	zram   []*block
	// killing is held while containers are killed.
	killing sync.Mutex
	// revision of etcd at the end of the last quiet phase, or empty.
	revision string
}

// Run runs a soak and prints a table. If ctx ends, it prints the table of the time until then. The
// error has all violations of invariants.
func Run(ctx context.Context, options Options) (err error) {
	images, err := mesh.ImageFiles(options.Images)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(options.Logs), os.MkdirAll(options.Logs, 0o755)); err != nil {
		return fmt.Errorf("create directory of logs: %w", err)
	}

	actions, err := os.Create(filepath.Join(options.Logs, "actions.log"))
	if err != nil {
		return fmt.Errorf("create list of actions: %w", err)
	}
	defer func() { err = errors.Join(err, actions.Close()) }()

	r := newRecord(options.Progress, options.Logs, actions)
	r.progress("seed %d, %s on %v", options.Seed, options.Duration, options.Nodes)
	running, err := cluster.Up(ctx, cluster.Config{
		Dir: options.Dir, Nodes: options.Nodes, Images: images, Kubelet: fastKubelet, Progress: func(step string) { r.progress("%s", step) },
	})
	if err != nil {
		return fmt.Errorf("start cluster: %w", err)
	}
	defer func() { err = errors.Join(err, running.Down(context.WithoutCancel(ctx))) }()

	s, err := newSoak(ctx, options, running, r)
	if err != nil {
		return err
	}
	// The devices are unplugged before the cluster is removed.
	defer func() { err = errors.Join(err, s.unplugZram(ctx)) }()
	if err := s.plugZram(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

func newSoak(ctx context.Context, options Options, running *cluster.Cluster, r *record) (*soak, error) {
	m, err := mesh.New(ctx, running)
	if err != nil {
		return nil, err
	}

	r.progress("installing Akri")
	// Two replicas, so that one of broker-controller can be killed while the other leads. The
	// invariants are those of device plugins.
	values := []string{"global.resources=devicePlugin", "broker-controller.replicas=2"}
	if options.Form == "agent" {
		values = append(values, "global.agent.enabled=true", "global.agent.handlers={debug-echo}")
	}
	if err := m.Install(ctx, values...); err != nil {
		return nil, err
	}

	desired := newModel(options.Nodes)
	w, err := newWatcher(m, r, desired)
	if err != nil {
		return nil, err
	}
	return &soak{Options: options, watcher: w, measurements: newMeasurements(), model: desired}, nil
}

// run alternates changes and quiet phases.
func (s *soak) run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer func() { stop(); background.Wait() }()
	if err := s.start(running, &background); err != nil {
		return err
	}
	end := time.Now().Add(s.Duration)
	for phase := uint64(0); ctx.Err() == nil; phase++ {
		s.quietPhase(ctx)
		left := time.Until(end)
		if left <= 0 {
			break
		}
		s.changePhase(ctx, phase, min(left, s.Churn))
	}
	return s.finish(ctx)
}

// start starts the checks and creates all objects of the model.
func (s *soak) start(ctx context.Context, background *sync.WaitGroup) error {
	if err := errors.Join(s.watcher.start(ctx, background), s.startLocals(ctx, background)); err != nil {
		return err
	}
	logs := &logReader{dir: s.Logs, offsets: map[string]int64{}}
	background.Go(func() {
		_ = every(ctx, logInterval, func() {
			err := logs.read(s.mesh.Cluster.Nodes(), func(file, line string) { s.violated(fmt.Errorf("unexpected log of %s: %s", file, line)) })
			if err != nil {
				s.violated(err)
			}
		})
	})
	background.Go(func() { s.restartExited(ctx) })
	background.Go(func() {
		_ = every(ctx, progressInterval, func() {
			s.progress("%d Instances, %d containers with devices; %s", len(s.instances.List()), len(s.running()), s.summary())
		})
	})
	return s.create(ctx)
}

func (s *soak) create(ctx context.Context) error {
	err := errors.Join(
		apply(ctx, deviceList(), s.mesh.Kubernetes.CoreV1().ConfigMaps(namespace).Patch),
		s.writeHandler(ctx, handlerPods(true)),
	)
	for _, c := range s.model.configurations {
		s.model.update(func() { c.exists = true })
		err = errors.Join(err, s.write(ctx, c))
	}
	return err
}

// write writes all objects and devices of a Configuration as the model has them.
func (s *soak) write(ctx context.Context, c *configuration) error {
	err := errors.Join(s.writeDevices(ctx, c), s.writeConfiguration(ctx, c))
	for _, w := range c.workloads {
		err = errors.Join(err, s.writeWorkload(ctx, c, w))
	}
	return err
}

// changePhase makes changes and faults for a while. All faults are repaired when it returns.
func (s *soak) changePhase(ctx context.Context, phase uint64, duration time.Duration) {
	s.progress("changes for %s", duration.Round(time.Second))
	changing, stop := context.WithTimeout(ctx, duration)
	defer stop()
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.Seed, 4*phase+stream)) }
	var running sync.WaitGroup
	running.Go(func() { _ = every(changing, churnInterval, func() { s.reap(ctx) }) })
	running.Go(func() { s.act(changing, ctx, random(0), churnInterval, changes) })
	running.Go(func() { s.killServices(changing, random(1)) })
	running.Go(func() { s.act(changing, ctx, random(2), faultInterval, faults) })
	running.Go(func() { _ = every(changing, measureInterval, func() { s.measure(changing, false) }) })
	running.Wait()
}

// quietPhase waits until the cluster is as the model and measures.
func (s *soak) quietPhase(ctx context.Context) {
	start := time.Now()
	err := s.settle(ctx)
	if err == nil {
		removed := s.cleanUp(ctx)
		s.progress("the state is that of the model after %s; deleted %d Pods that kubelets rejected", time.Since(start).Round(time.Millisecond), removed)
	}
	if err == nil && s.Growth {
		err = s.restore(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.violated(fmt.Errorf("the state is not that of the model: %w", err), s.instances.List(), s.configurations.List())
		}
		return
	}

	if err := s.compact(ctx); err != nil && ctx.Err() == nil {
		s.progress("%v", err) // the next quiet phase compacts
	}

	for range quietSamples {
		if cluster.Pause(ctx, quietInterval) != nil {
			return
		}
		s.measure(ctx, true)
	}

	if err := s.settled(ctx); err != nil {
		s.violated(fmt.Errorf("the state changed in a quiet phase: %w", err), s.instances.List())
	}
	s.endPhase()
}

// finish prints the table. The first quarter of the run is the warm-up.
func (s *soak) finish(ctx context.Context) error {
	fmt.Fprintf(s.Out, "\nSeed %d, %s. %s.\n", s.Seed, time.Since(s.measurements.started).Round(time.Second), s.summary())
	growth := s.print(s.Out, time.Since(s.measurements.started).Hours()/4)
	if !s.Growth {
		growth = nil
	}
	if ctx.Err() != nil {
		s.progress("stopped")
	}
	return errors.Join(s.err(), growth)
}

// every calls f at an interval until ctx ends. It returns the reason of the end.
func every(ctx context.Context, interval time.Duration, f func()) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			f()
		}
	}
}
