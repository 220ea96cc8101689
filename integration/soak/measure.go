package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/integration/mesh"
)

// Quantities that are measured, with the growth that is allowed. A process that does not leak keeps
// the number of its goroutines and descriptors, and the number of objects does not grow while the
// number of devices does not. The share allows for the changes of the model between two samples.
// Memory grows a little for hours, because the heap fragments and caches fill.
const (
	memory      = "private memory (MiB)"
	goroutines  = "goroutines"
	descriptors = "descriptors"
	objects     = "API objects"
	etcdSize    = "etcd, size in use (MiB)"
	checkpoint  = "kubelet checkpoint (KiB)"
	events      = "Events"
)

var limits = map[string]limit{
	memory:      {perHour: 1, share: 0.05},
	goroutines:  {perHour: 1, share: 0.02},
	descriptors: {perHour: 1, share: 0.02},
	objects:     {perHour: 1, share: 0.02},
	etcdSize:    {perHour: 1, share: 0.05},
	checkpoint:  {perHour: 1, share: 0.02},
}

// series are the values of one quantity of one process or kind.
type series struct {
	quantity, name string
	// process is the container. A service has one series for each of its processes.
	process string
	all     []point
	// quiet has one point for each quiet phase: the mean of its samples.
	quiet []point
}

// measurements are safe for one goroutine at a time.
type measurements struct {
	started time.Time
	series  map[string]*series
	phase   map[string][]point // the samples of the quiet phase
}

func newMeasurements() *measurements {
	return &measurements{started: time.Now(), series: map[string]*series{}, phase: map[string][]point{}}
}

func (m *measurements) add(quantity, name, process string, value float64, quiet bool) {
	key := quantity + "\x00" + name + "\x00" + process
	if m.series[key] == nil {
		m.series[key] = &series{quantity: quantity, name: name, process: process}
	}
	p := point{time.Since(m.started).Hours(), value}
	m.series[key].all = append(m.series[key].all, p)
	if quiet {
		m.phase[key] = append(m.phase[key], p)
	}
}

// endPhase replaces the samples of a quiet phase by their mean. They are too alike to be counted
// one by one.
func (m *measurements) endPhase() {
	for key, samples := range m.phase {
		var mean point
		for _, p := range samples {
			mean.hours += p.hours / float64(len(samples))
			mean.value += p.value / float64(len(samples))
		}
		m.series[key].quiet = append(m.series[key].quiet, mean)
	}
	clear(m.phase)
}

// kinds are the API objects that are counted, by resource, with the path of their API group.
var kinds = map[string][]string{
	"/api/v1":                      {"pods", "services", "configmaps", "secrets"},
	"/apis/apps/v1":                {"replicasets", "controllerrevisions"},
	"/apis/batch/v1":               {"jobs"},
	"/apis/akri.sh/v0":             {"configurations", "instances"},
	"/apis/coordination.k8s.io/v1": {"leases"},
	"/apis/discovery.k8s.io/v1":    {"endpointslices"},
	"/apis/events.k8s.io/v1":       {"events"},
}

// measure adds one sample of everything. A value that is not available at the moment is missing.
func (s *soak) measure(ctx context.Context, quiet bool) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, pod := range s.servicePods() {
		s.measurePod(ctx, pod, quiet)
	}
	for path, resources := range kinds {
		for _, resource := range resources {
			if count, err := s.objects(ctx, path+"/"+resource); err == nil {
				quantity := objects
				if resource == "events" {
					quantity = events
				}
				s.add(quantity, resource, "", float64(count), quiet)
			}
		}
	}
	if text, err := s.mesh.Cluster.EtcdMetrics(ctx); err == nil {
		if size, ok := gauge(text, "etcd_mvcc_db_total_size_in_use_in_bytes"); ok {
			s.add(etcdSize, "etcd", "", size/(1<<20), quiet)
		}
	}
	for _, node := range s.mesh.Cluster.Nodes() {
		if info, err := os.Stat(filepath.Join(node.KubeletDir(), "device-plugins", "kubelet_internal_checkpoint")); err == nil {
			s.add(checkpoint, node.Name(), "", float64(info.Size())/1024, quiet)
		}
	}
}

// measurePod measures the processes of a service's Pod. Only the service itself has metrics.
func (s *soak) measurePod(ctx context.Context, pod *corev1.Pod, quiet bool) {
	for _, status := range pod.Status.ContainerStatuses {
		pid, runs := s.pid(pod, status)
		if !runs {
			continue
		}
		name := mesh.ProcessOf(pod, status.Name) + " on " + pod.Spec.NodeName
		s.measureProcess(name, status.ContainerID, pid, quiet)
		if status.Name != pod.Spec.Containers[0].Name {
			continue
		}
		if text, err := s.mesh.Metrics(ctx, pod); err == nil {
			if count, ok := gauge(text, "go_goroutines"); ok {
				s.add(goroutines, name, status.ContainerID, count, quiet)
			}
		}
	}
}

func (s *soak) measureProcess(name, id string, pid int, quiet bool) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return
	}
	if used, err := process.ProcSMapsRollup(); err == nil {
		s.add(memory, name, id, float64(used.Anonymous)/(1<<20), quiet)
	}
	if count, err := process.FileDescriptorsLen(); err == nil {
		s.add(descriptors, name, id, float64(count), quiet)
	}
}

// objects returns the number of objects of a resource.
func (s *soak) objects(ctx context.Context, path string) (int64, error) {
	text, err := s.mesh.Kubernetes.CoreV1().RESTClient().Get().AbsPath(path).Param("limit", "1").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("count objects: %w", err)
	}
	var list struct {
		Metadata struct{ RemainingItemCount int64 }
		Items    []struct{}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("decode list: %w", err)
	}
	return list.Metadata.RemainingItemCount + int64(len(list.Items)), nil
}

// gauge returns the value of a gauge without labels.
func gauge(text []byte, name string) (float64, bool) {
	parser := expfmt.NewTextParser(names.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil || len(families[name].GetMetric()) == 0 {
		return 0, false
	}
	return families[name].GetMetric()[0].GetGauge().GetValue(), true
}
