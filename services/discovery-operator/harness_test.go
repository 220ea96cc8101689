package operator_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"

	"akri.sh/libs/admin"
	"akri.sh/libs/rpctest"
	"akri.sh/libs/service"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	operator "akri.sh/services/discovery-operator"
)

const (
	node    = "node-a"
	soon    = time.Minute
	tick    = 2 * time.Millisecond
	forever = time.Hour
)

func TestMain(m *testing.M) {
	if address := os.Getenv(handlerProcessAddress); address != "" {
		runHandlerProcess(address)
		return
	}
	os.Exit(m.Run())
}

// harness runs one discovery-operator with a fake registrar and instance-writer.
type harness struct {
	t         *testing.T
	namespace string
	config    operator.Config
	registrar *fakeRegistrar
	writer    *fakeWriter
	metrics   *prometheus.Registry
	warnings  *observer.ObservedLogs
	health    *admin.Health
	stop      func()
}

func newHarness(t *testing.T, grace time.Duration) *harness {
	t.Helper()
	current := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, current) })
	h := &harness{t: t, namespace: "default", registrar: &fakeRegistrar{}, writer: &fakeWriter{}}
	h.config = operator.Config{
		Socket:    "unix://" + filepath.Join(t.TempDir(), "o.sock"),
		Registrar: rpctest.Serve(t, h.registrar.register), InstanceWriter: rpctest.Serve(t, h.writer.register),
		NodeName: node, HandlerGrace: grace, MaxDevices: 1000, ProbeInterval: 3 * time.Second,
	}
	return h
}

func (h *harness) start() {
	h.t.Helper()
	h.metrics = prometheus.NewRegistry()
	h.health = &admin.Health{}
	s, err := operator.New(h.config, service.Env{Log: h.logger(), Metrics: h.metrics, Health: h.health})
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	h.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(h.t, <-done)
		}
	}
	h.t.Cleanup(h.stop)
}

// logger logs to the test and records warnings and errors.
func (h *harness) logger() *zap.Logger {
	core, warnings := observer.New(zap.WarnLevel)
	h.warnings = warnings
	return zaptest.NewLogger(h.t, zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) })))
}

// apply creates a Configuration with the values of its properties and returns its key.
func (h *harness) apply(namespace, name, handler, details string, properties ...property) string {
	h.t.Helper()
	request := &configurationv1.DiscoveryRequest{Details: details}
	setProperties(request, properties)
	h.writer.configurations.create(&configurationv1.Configuration{
		Namespace: namespace, Name: name, Generation: 1, Handler: handler, Request: request,
	})
	return namespace + "/" + name
}

type property struct {
	name  string
	value []byte
}

func password(value string) property { return property{"password", []byte(value)} }

func setProperties(request *configurationv1.DiscoveryRequest, properties []property) {
	request.Problems, request.Properties = nil, map[string]*configurationv1.PropertyValue{}
	for _, p := range properties {
		request.Properties[p.name] = &configurationv1.PropertyValue{Value: p.value}
	}
}

// edit changes the spec of a Configuration.
func (h *harness) edit(key string, change func(*configurationv1.DiscoveryRequest)) {
	h.t.Helper()
	h.writer.configurations.update(key, func(configuration *configurationv1.Configuration) {
		configuration.Generation++
		change(configuration.GetRequest())
	})
}

// setProperties changes the values of the properties of a Configuration.
func (h *harness) setProperties(key string, properties ...property) {
	h.t.Helper()
	h.writer.configurations.update(key, func(configuration *configurationv1.Configuration) {
		setProperties(configuration.GetRequest(), properties)
	})
}

// setProblem replaces the values of the properties of a Configuration by a problem.
func (h *harness) setProblem(key string, problem *instancev1.Problem) {
	h.t.Helper()
	h.writer.configurations.update(key, func(configuration *configurationv1.Configuration) {
		setProperties(configuration.GetRequest(), nil)
		configuration.GetRequest().Problems = []*instancev1.Problem{problem}
	})
}

func (h *harness) remove(key string) {
	h.t.Helper()
	h.writer.configurations.delete(key)
}

func (h *harness) eventually(condition func() bool, what string) {
	h.t.Helper()
	require.Eventually(h.t, condition, soon, tick, what)
}

// reported waits until the last report of a Configuration has the devices and returns it.
func (h *harness) reported(key string, complete bool, ids ...string) *instancev1.ReportDevicesRequest {
	h.t.Helper()
	var last *instancev1.ReportDevicesRequest
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		if len(reports) == 0 {
			return false
		}
		last = reports[len(reports)-1]
		return last.GetComplete() == complete && sameIDs(last, ids)
	}, "report of "+key)
	return last
}

// problem waits until the last report of a Configuration has a problem with the reason and returns
// it.
func (h *harness) problem(key, reason string) *instancev1.Problem {
	h.t.Helper()
	var found *instancev1.Problem
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		if len(reports) == 0 {
			return false
		}
		for _, problem := range reports[len(reports)-1].GetProblems() {
			if problem.GetReason() == reason {
				found = problem
			}
		}
		return found != nil
	}, reason+" of "+key)
	return found
}

// neverGone asserts that every complete report of a Configuration has the device.
func (h *harness) neverGone(key, id string) {
	h.t.Helper()
	for _, report := range h.writer.reportsOf(key) {
		if report.GetComplete() {
			require.True(h.t, hasID(report, id), "no device %s in the complete report %v", id, report)
		}
	}
}

// watchDevices opens a stream of the inventory of the node, with a deadline.
func (h *harness) watchDevices() grpc.ServerStreamingClient[discoveryv1.WatchDevicesResponse] {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), soon)
	h.t.Cleanup(cancel)
	watch, err := discoveryv1.NewDeviceInventoryServiceClient(rpctest.Dial(h.t, h.config.Socket)).
		WatchDevices(ctx, &discoveryv1.WatchDevicesRequest{}, grpc.WaitForReady(true))
	require.NoError(h.t, err)
	return watch
}

// awaitInventory waits until the inventory of the node meets the condition.
func (h *harness) awaitInventory(condition func(*discoveryv1.WatchDevicesResponse) bool) {
	h.t.Helper()
	watch := h.watchDevices()
	for {
		response, err := watch.Recv()
		require.NoError(h.t, err)
		if condition(response) {
			return
		}
	}
}

func sameIDs(report *instancev1.ReportDevicesRequest, ids []string) bool {
	for _, id := range ids {
		if !hasID(report, id) {
			return false
		}
	}
	return len(report.GetDevices()) == len(ids)
}

func hasID(report *instancev1.ReportDevicesRequest, id string) bool {
	for _, device := range report.GetDevices() {
		if device.GetId() == id {
			return true
		}
	}
	return false
}
