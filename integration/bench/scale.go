package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/progress"
	"akri.sh/integration/simulation"
)

const (
	scaleLocal, scaleShared = 10, 50 // devices of each node, devices that all nodes share
	scaleCapacity           = 10
	scaleRounds             = 50 // times that a device comes and goes
	scaleTimeout            = 10 * time.Minute
	progressInterval        = 5 * time.Second
	memoryInterval          = 250 * time.Millisecond
	reviewInterval          = 10 * time.Second
	tokenReviews            = "POST tokenreviews"
	simulationGC            = 400 // percent
	// referenceRequests is the number of Instances that instance-writer creates at once.
	referenceRequests = 16
)

// scale is the result for one number of nodes.
type scale struct {
	nodes                                   int
	appeared, restarted, changed, vanished  time.Duration
	single                                  []time.Duration
	idle, peak                              usage
	reviews                                 float64 // per second
	mostReviews                             float64 // per second, in reviewInterval
	writes                                  map[string]float64
	refused                                 map[string]int
	deleted                                 int
	collisions                              int
	localConfiguration, sharedConfiguration int // bytes
	kubernetes                              string
	// instances are those of all nodes. reference is the time in which a client without nodes and
	// instance-writer creates them.
	instances []akriv0.Instance
	reference time.Duration
}

// scaleRun is a measurement with one number of nodes.
type scaleRun struct {
	*bench
	*simulation.Environment
	local, shared *akriv0.Configuration
	result        *scale
	// restarting is held while the process of instance-writer changes.
	restarting sync.Mutex
}

// scales measures one instance-writer and simulated nodes, for each number of nodes.
func (b *bench) scales(ctx context.Context) error {
	// The simulated nodes use the CPUs of instance-writer and of the API server.
	defer debug.SetGCPercent(debug.SetGCPercent(simulationGC))
	var results []*scale
	for _, nodes := range b.Nodes {
		result, err := b.scale(ctx, nodes)
		if err != nil {
			return fmt.Errorf("measure %d nodes: %w", nodes, err)
		}
		b.progress("%d nodes: a client creates the same Instances", nodes)
		if result.reference, err = createInstances(ctx, result.instances); err != nil {
			return fmt.Errorf("create the Instances of %d nodes: %w", nodes, err)
		}
		results = append(results, result)
	}
	b.printScales(results)
	return nil
}

func (b *bench) scale(ctx context.Context, nodes int) (_ *scale, err error) {
	environment, err := simulation.New(ctx, simulation.Options{
		Nodes: nodes, Replicas: 1, Agent: b.Agent, Memory: memoryFor(nodes), Handlers: []string{"onvif", "udev"},
		Progress: func(format string, arguments ...any) {
			b.progress("%d nodes: "+format, append([]any{nodes}, arguments...)...)
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, environment.Stop()) }()
	s := &scaleRun{bench: b, Environment: environment, result: &scale{nodes: nodes, kubernetes: kubernetesVersion(environment.Kubernetes)}}
	if s.local, err = s.Configure(ctx, "local", "udev", scaleCapacity); err != nil {
		return nil, err
	}
	if s.shared, err = s.Configure(ctx, "shared", "onvif", scaleCapacity); err != nil {
		return nil, err
	}
	all := s.Nodes
	stop := s.recordPeak(ctx)
	defer stop()
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"all nodes connect", s.appear},
		{"kill -9 of instance-writer", s.restart},
		{"idle for " + b.Idle.String(), s.idleWindow},
		{"a device comes and goes", s.comeAndGo},
		{"all shared devices change", s.changeShared},
		{"a tenth of the nodes is deleted", s.vanish},
	} {
		if err := s.step(ctx, step.name, step.run); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	s.result.refused = map[string]int{}
	for _, node := range all {
		node.Refused(s.result.refused)
	}
	s.result.deleted = len(s.Model.Deleted())
	return s.result, nil
}

// createInstances creates the Instances on an API server that has nothing else to do.
func createInstances(ctx context.Context, instances []akriv0.Instance) (time.Duration, error) {
	api, err := kubetest.Start(ctx)
	if err != nil {
		return 0, err
	}
	defer api.Stop()
	config := api.Config()
	config.QPS = -1 // no limit, as for instance-writer
	client, err := kube.Instances(config)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(referenceRequests)
	for _, instance := range instances {
		group.Go(func() error {
			instance.ObjectMeta = metav1.ObjectMeta{
				Name: instance.Name, Namespace: instance.Namespace, Labels: instance.Labels, Annotations: instance.Annotations,
				OwnerReferences: instance.OwnerReferences,
			}
			_, err := client.In(instance.Namespace).Create(ctx, &instance, metav1.CreateOptions{})
			return err
		})
	}
	err = group.Wait()
	return time.Since(start), err
}

// memoryFor returns the limit that docs/scale.md gives for one replica in MiB, or 0 if that of the
// chart is enough.
func memoryFor(nodes int) int {
	if nodes <= 1000 {
		return 0
	}
	instances := nodes*scaleLocal + scaleShared
	return int((16 + 0.16*float64(nodes) + 6*float64(instances)/1024) / 0.55)
}

// step prints progress until run returns.
func (s *scaleRun) step(ctx context.Context, name string, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Idle+scaleTimeout)
	defer cancel()
	s.progress("%d nodes: %s", s.result.nodes, name)
	started := time.Now()
	err := progress.While(progressInterval, func(elapsed time.Duration) {
		s.progress("%d nodes: %s for %.0f s, %d Instances are not up to date", s.result.nodes, name, elapsed.Seconds(), s.Model.Differing())
	}, func() error { return run(ctx) })
	s.progress("%d nodes: %s: ended after %s", s.result.nodes, name, seconds(time.Since(started)))
	return err
}

// appear makes all nodes connect and report all devices.
func (s *scaleRun) appear(ctx context.Context) (err error) {
	for _, node := range s.Nodes {
		var local []*discoveryv1.Device
		for i := range scaleLocal {
			local = append(local, s.localDevice(node, i))
		}
		node.Set(s.local, local...)
		node.Set(s.shared, s.sharedDevices("1080p")...)
	}
	start := time.Now()
	for _, node := range s.Nodes {
		node.Start(ctx)
	}
	s.result.appeared, err = s.awaitInstances(ctx, start)
	s.result.collisions = s.Model.Collisions()
	if err != nil {
		return err
	}
	if _, err = simulation.AwaitAnswers(ctx, s.Nodes, start); err != nil {
		return err
	}
	list, err := s.Instances.In(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Instances: %w", err)
	}
	s.result.instances = list.Items
	return nil
}

func (s *scaleRun) localDevice(node *simulation.Node, index int) *discoveryv1.Device {
	path := "/dev/video" + strconv.Itoa(index)
	return simulation.Device(s.local, node.Name, path, false, map[string]string{"UDEV_DEVNODE": path})
}

func (s *scaleRun) sharedDevices(resolution string) (devices []*discoveryv1.Device) {
	for i := range scaleShared {
		address := "10.0.0." + strconv.Itoa(i)
		devices = append(devices, simulation.Device(s.shared, "", address, true, map[string]string{
			"ONVIF_DEVICE_SERVICE_URL": "http://" + address + "/onvif/device_service", "ONVIF_DEVICE_IP_ADDRESS": address, "RESOLUTION": resolution,
		}))
	}
	return devices
}

func (s *scaleRun) awaitInstances(ctx context.Context, start time.Time) (time.Duration, error) {
	at, err := s.Model.Await(ctx)
	return at.Sub(start), err
}

// restart kills instance-writer.
func (s *scaleRun) restart(ctx context.Context) error {
	s.restarting.Lock()
	killed := time.Now()
	err := s.Writers[0].Restart()
	s.restarting.Unlock()
	if err != nil {
		return err
	}
	at, err := simulation.AwaitAnswers(ctx, s.Nodes, killed)
	s.result.restarted = at.Sub(killed)
	return err
}

// idleWindow measures memory and API requests without changes.
func (s *scaleRun) idleWindow(ctx context.Context) error {
	// The status of Configurations follows after a second.
	if err := cluster.Pause(ctx, reviewInterval); err != nil {
		return err
	}
	first, err := writesTo(ctx, s.Kubernetes)
	if err != nil {
		return err
	}
	last := first
	started := time.Now()
	for time.Since(started) < s.Idle {
		if err := cluster.Pause(ctx, reviewInterval); err != nil {
			return err
		}
		now, err := writesTo(ctx, s.Kubernetes)
		if err != nil {
			return err
		}
		s.result.mostReviews = max(s.result.mostReviews, (now[tokenReviews]-last[tokenReviews])/reviewInterval.Seconds())
		last = now
	}
	s.result.reviews = (last[tokenReviews] - first[tokenReviews]) / time.Since(started).Seconds()
	s.result.writes = writesSince(first, last)
	delete(s.result.writes, tokenReviews)
	if s.result.idle, err = s.memory(); err != nil {
		return err
	}
	localErr := s.sizeOf(ctx, s.local.Name, &s.result.localConfiguration)
	return errors.Join(localErr, s.sizeOf(ctx, s.shared.Name, &s.result.sharedConfiguration))
}

func (s *scaleRun) sizeOf(ctx context.Context, configuration string, size *int) error {
	got, err := s.Configurations.In(namespace).Get(ctx, configuration, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Configuration: %w", err)
	}
	encoded, err := json.Marshal(got)
	*size = len(encoded)
	return err
}

// comeAndGo makes a device come and go on one node.
func (s *scaleRun) comeAndGo(ctx context.Context) error {
	node := s.Nodes[len(s.Nodes)/2]
	device := s.localDevice(node, scaleLocal)
	for range scaleRounds {
		for _, change := range []func(){
			func() { node.Set(s.local, device) },
			func() { node.Remove(s.local, device.GetInstance()) },
		} {
			start := time.Now()
			change()
			took, err := s.awaitInstances(ctx, start)
			if err != nil {
				return err
			}
			s.result.single = append(s.result.single, took)
		}
	}
	slices.Sort(s.result.single)
	return nil
}

// changeShared changes a property of all shared devices on all nodes.
func (s *scaleRun) changeShared(ctx context.Context) (err error) {
	devices := s.sharedDevices("2160p")
	start := time.Now()
	for _, node := range s.Nodes {
		node.Set(s.shared, devices...)
	}
	s.result.changed, err = s.awaitInstances(ctx, start)
	return err
}

// vanish deletes a tenth of the nodes.
func (s *scaleRun) vanish(ctx context.Context) (err error) {
	count := len(s.Nodes) / 10
	var deleted []*simulation.Node
	deleted, s.Nodes = s.Nodes[:count], s.Nodes[count:]
	start := time.Now()
	if err := s.Delete(ctx, deleted); err != nil {
		return err
	}
	s.result.vanished, err = s.awaitInstances(ctx, start)
	return err
}

func (s *scaleRun) memory() (usage, error) {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	pid := s.Writers[0].PID()
	used, err := readUsage("instance-writer", pid)
	if err != nil {
		return used, err
	}
	used.working, err = workingSet(pid)
	return used, err
}

// recordPeak records the highest memory until stop is called.
func (s *scaleRun) recordPeak(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var recording sync.WaitGroup
	recording.Go(func() {
		for cluster.Pause(ctx, memoryInterval) == nil {
			// After an error the next sample counts.
			if used, err := s.memory(); err == nil {
				peak := &s.result.peak
				peak.private, peak.working = max(peak.private, used.private), max(peak.working, used.working)
			}
		}
	})
	return func() { cancel(); recording.Wait() }
}

func (b *bench) printScales(results []*scale) {
	if len(results) == 0 {
		return
	}
	b.printMachine(results[0].kubernetes)
	rows := []struct {
		name  string
		value func(*scale) string
	}{
		{"all nodes connect → all Instances right", func(s *scale) string { return seconds(s.appeared) }},
		{"the same Instances created by a client, without nodes and instance-writer", func(s *scale) string { return seconds(s.reference) }},
		{"`kill -9` of instance-writer → every node answered", func(s *scale) string { return seconds(s.restarted) }},
		{"working set / private memory, idle", func(s *scale) string { return bothMiB(s.idle) }},
		{"working set / private memory, peak", func(s *scale) string { return bothMiB(s.peak) }},
		{"TokenReviews a second, mean / most in 10 s", func(s *scale) string { return fmt.Sprintf("%.1f / %.1f", s.reviews, s.mostReviews) }},
		{"API writes without Leases, idle", func(s *scale) string { return orNone(s.writes) }},
		{"devices with a digest collision", func(s *scale) string { return strconv.Itoa(s.collisions) }},
		{"refused devices in responses; `NotWritten` is a late response", func(s *scale) string { return orNone(s.refused) }},
		{"Instances deleted while a node saw the device", func(s *scale) string { return strconv.Itoa(s.deleted) }},
		{"a device comes or goes on one node → seen by an API watch, p50 / p99", func(s *scale) string {
			return percentile(s.single, 50) + " / " + percentile(s.single, 99)
		}},
		{"all shared devices change a property → all Instances right", func(s *scale) string { return seconds(s.changed) }},
		{"a tenth of the nodes is deleted → all Instances right", func(s *scale) string { return seconds(s.vanished) }},
		{"size of the Configuration of local / shared devices", func(s *scale) string {
			return fmt.Sprintf("%.0f / %.0f KiB", float64(s.localConfiguration)/1024, float64(s.sharedConfiguration)/1024)
		}},
	}
	header, line := "| |", "|---|"
	for _, result := range results {
		header += fmt.Sprintf(" %d nodes |", result.nodes)
		line += "---|"
	}
	fmt.Fprintf(b.Out, "\n%s\n%s\n", header, line)
	for _, row := range rows {
		fmt.Fprintf(b.Out, "| %s |", row.name)
		for _, result := range results {
			fmt.Fprintf(b.Out, " %s |", row.value(result))
		}
		fmt.Fprintln(b.Out)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func bothMiB(u usage) string { return fmt.Sprintf("%.0f / %.0f MiB", mib(u.working), mib(u.private)) }

// orNone formats counts by name.
func orNone[V int | float64](counts map[string]V) string {
	return cmp.Or(strings.TrimPrefix(fmt.Sprint(counts), "map[]"), "none")
}
