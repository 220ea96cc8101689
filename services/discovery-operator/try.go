package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/trial"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

const (
	// maxRequestBytes is more than an object of the API server can have.
	maxRequestBytes = 4 << 20
	// maxTrial limits the time of a trial.
	maxTrial = 5 * time.Minute
	// registrarTimeout is the time for the table of handlers.
	registrarTimeout = 5 * time.Second
	// explainTimeout is the time for the devices that come close.
	explainTimeout = 2 * time.Second
)

// TryCommand returns the command `try`, which answers a trial.Request. The configuration of the
// service is a part of that of the process.
func TryCommand[C any](of func(C) Config, in io.Reader, out io.Writer) service.Command[C] {
	return service.Command[C]{
		Name: "try", Help: "Find the devices that match a request on the standard input, for kubectl akri try.",
		Run: func(ctx context.Context, config C) error { return Try(ctx, of(config), in, out) },
	}
}

// Try reads a trial.Request from in, calls the handler, and writes a trial.Result to out. It ends
// when in ends.
func Try(ctx context.Context, config Config, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, maxTrial)
	defer cancel()
	var request trial.Request
	if err := json.NewDecoder(io.LimitReader(in, maxRequestBytes)).Decode(&request); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	result, err := config.try(ctx, request)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

func (c Config) try(ctx context.Context, request trial.Request) (*trial.Result, error) {
	handlers, err := c.handlers(ctx)
	if err != nil {
		return nil, err
	}
	var registered []string
	for _, handler := range handlers {
		registered = append(registered, handler.GetName())
	}
	handlers = slices.DeleteFunc(slices.Clone(handlers), func(h *registrarv1.Handler) bool { return h.GetName() != request.Handler })
	listed, cancel := context.WithTimeout(ctx, request.Timeout)
	defer cancel()
	if request.OnlyClosest {
		return &trial.Result{Node: c.NodeName, Groups: c.closest(listed, handlers, request)}, nil
	}
	sources := c.sources(listed, handlers, request)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("try: %w", ctx.Err())
	}
	if inventory.HaveDeviceNodes(sources) {
		c.policy().CheckDeviceNodes(sources, c.host().Read())
	}
	result := resultOf(inventory.Build(inventory.Input{
		Node: c.NodeName, Configuration: &configurationv1.Configuration{Handler: request.Handler},
		Sources: sources, Registered: registered, HandlersSynced: true,
	}), c.NodeName, sources)
	if result.Answered && len(result.Devices) == 0 && len(result.Problems) == 0 {
		result.Groups = c.closest(ctx, handlers, request)
	}
	return result, nil
}

// closest calls the endpoints of the handler one after the other until one explains.
func (c Config) closest(ctx context.Context, handlers []*registrarv1.Handler, request trial.Request) []trial.Group {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	for _, handler := range handlers {
		if groups := discovery.Closest(ctx, discovery.Target{Handler: handler, Dial: c.Dial}, request.Details); len(groups) > 0 {
			return groups
		}
	}
	return nil
}

// handlers returns the registrar's table.
func (c Config) handlers(ctx context.Context) ([]*registrarv1.Handler, error) {
	ctx, cancel := context.WithTimeout(ctx, registrarTimeout)
	defer cancel()
	conn, err := rpc.Dial(c.Registrar, prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	table, err := registrarv1.NewRegistrarServiceClient(conn).ListHandlers(ctx, &registrarv1.ListHandlersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the handlers of the registrar: %w", err)
	}
	return table.GetHandlers(), nil
}

// sources calls all endpoints of the handler at once.
func (c Config) sources(ctx context.Context, handlers []*registrarv1.Handler, request trial.Request) []inventory.Source {
	sources := make([]inventory.Source, len(handlers))
	query := &discoveryv0.DiscoverRequest{DiscoveryDetails: request.Details}
	var calls sync.WaitGroup
	for i, handler := range handlers {
		calls.Go(func() {
			list, problem := discovery.Try(ctx, discovery.Target{Handler: handler, Dial: c.Dial}, query)
			handler.Status = registrarv1.HandlerStatus_HANDLER_STATUS_UNSPECIFIED // the trial has called it now
			sources[i] = inventory.Source{Handler: handler, Answered: problem == nil}
			if problem != nil {
				sources[i].Problems = []*instancev1.Problem{problem}
				return
			}
			sources[i].Devices, sources[i].Problems = inventory.Validate(c.policy(), inventory.List{
				Handler: handler.GetName(), Endpoint: handler.GetEndpoint(), Details: request.Details, Devices: list,
			})
		})
	}
	calls.Wait()
	return sources
}

func resultOf(entry *inventory.Entry, node string, sources []inventory.Source) *trial.Result {
	result := &trial.Result{Node: node}
	result.Answered = slices.ContainsFunc(sources, func(s inventory.Source) bool { return s.Answered })
	for _, device := range entry.Report.GetDevices() {
		found := trial.Device{ID: device.GetId(), Shared: device.GetShared(), Properties: device.GetProperties()}
		for _, deviceNode := range device.GetDeviceNodes() {
			found.DeviceNodes = append(found.DeviceNodes, deviceNode.GetHostPath())
		}
		for _, mount := range device.GetMounts() {
			found.Mounts = append(found.Mounts, mount.GetHostPath())
		}
		result.Devices = append(result.Devices, found)
	}
	for _, problem := range entry.Report.GetProblems() {
		result.Problems = append(result.Problems, trial.Problem{Reason: cmp.Or(problem.GetReason(), akriv0.ReasonDiscoverFailed), Message: problem.GetMessage()})
	}
	return result
}
