// Package simulation simulates nodes for a real instance-writer: the streams that the services of a
// node keep open, and the devices that they report. It compares the Instances in the API server
// with these devices.
package simulation

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Longest delays before discovery-operator and device-plugin-host open a stream again.
const (
	operatorRetryDelay = 5 * time.Second
	hostRetryDelay     = 2 * time.Second
)

// The streams of a node.
const (
	reportStream = iota
	configurationStream
	instanceStream
	streamCount
)

// Node is a simulated node.
type Node struct {
	Name string

	// source is the address of the node. instance-writer limits the connections of one address.
	source net.IP
	// writers are the addresses of the replicas. Each connection uses one of them at random, as
	// with a ClusterIP.
	writers []string
	// handlers are the names of the Discovery Handlers.
	handlers []string
	model    *Model // gets the devices of the node

	conns    []*grpc.ClientConn
	operator *grpc.ClientConn
	host     instancev1.InstanceServiceClient
	reports  broadcast.Value[[]*instancev1.ReportDevicesRequest]
	// answered are the times, in nanoseconds, of the first complete answer of each newest stream.
	answered [streamCount]atomic.Int64
	stop     func()

	mu      sync.Mutex
	devices map[*akriv0.Configuration]map[string]*discoveryv1.Device // by Instance
	refused map[string]map[string]bool                               // Instances by reason
}

// connect creates the connections of discovery-operator and device-plugin-host with their
// identities. It opens none. In the agent both use the connection of operator, and host is empty.
func (n *Node) connect(operator, host rpc.Identity) (err error) {
	if n.operator, err = n.dial(operator); err != nil {
		return err
	}
	n.conns = []*grpc.ClientConn{n.operator}
	hostConn := n.operator
	if host != (rpc.Identity{}) {
		if hostConn, err = n.dial(host); err != nil {
			return err // Stop closes the other connection
		}
		n.conns = append(n.conns, hostConn)
	}
	n.host = instancev1.NewInstanceServiceClient(hostConn)
	return nil
}

func (n *Node) dial(identity rpc.Identity) (*grpc.ClientConn, error) {
	address := "passthrough:///akri-instance-writer:9443"
	options, err := identity.DialOptions(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: n.source}}
	options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", n.writers[rand.IntN(len(n.writers))])
	}))
	return rpc.Dial(address, prometheus.NewRegistry(), options...)
}

// Device returns a device of a Configuration. The node is ignored if the device is shared.
func Device(configuration *akriv0.Configuration, node, id string, shared bool, properties map[string]string) *discoveryv1.Device {
	digest := akriv0.Digest(id, node, shared)
	return &discoveryv1.Device{
		Instance: akriv0.InstanceName(configuration.Name, digest), Id: id, Shared: shared, Properties: properties,
	}
}

// Set adds devices of a Configuration, or replaces their properties.
func (n *Node) Set(configuration *akriv0.Configuration, devices ...*discoveryv1.Device) {
	n.change(configuration, func(all map[string]*discoveryv1.Device) {
		for _, device := range devices {
			n.model.set(n.Name, device)
			all[device.GetInstance()] = device
		}
	})
}

// Remove removes a device of a Configuration.
func (n *Node) Remove(configuration *akriv0.Configuration, instance string) {
	n.change(configuration, func(all map[string]*discoveryv1.Device) {
		n.model.remove(instance, n.Name)
		delete(all, instance)
	})
}

// change changes the devices of a Configuration and reports them.
func (n *Node) change(configuration *akriv0.Configuration, change func(map[string]*discoveryv1.Device)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.devices[configuration] == nil {
		n.devices[configuration] = map[string]*discoveryv1.Device{}
	}
	change(n.devices[configuration])
	handler := configuration.Spec.DiscoveryHandler.Name
	report := &instancev1.ReportDevicesRequest{
		Node: n.Name, Namespace: configuration.Namespace, Configuration: configuration.Name,
		ConfigurationUid: string(configuration.UID), ConfigurationGeneration: configuration.Generation, Complete: true,
		Handlers: []*instancev1.HandlerState{{Name: handler, Endpoint: "/" + handler + ".sock", Status: string(akriv0.HandlerActive)}},
		Devices: slices.SortedFunc(maps.Values(n.devices[configuration]), func(a, b *discoveryv1.Device) int {
			return strings.Compare(a.GetInstance(), b.GetInstance())
		}),
	}
	reports, _ := n.reports.Get()
	others := slices.DeleteFunc(slices.Clone(reports), func(other *instancev1.ReportDevicesRequest) bool {
		return other.GetConfigurationUid() == report.GetConfigurationUid()
	})
	n.reports.Set(append(others, report))
}

// Start opens the streams and keeps them open until Stop, also if ctx ends.
func (n *Node) Start(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var streams sync.WaitGroup
	keep := func(maxDelay time.Duration, open func(context.Context, func()) error) {
		streams.Go(func() {
			rpc.Keep(ctx, zap.NewNop(), maxDelay, func(ctx context.Context, healthy func()) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				return open(ctx, healthy)
			})
		})
	}
	keep(operatorRetryDelay, n.report)
	keep(operatorRetryDelay, n.watchConfigurations)
	keep(hostRetryDelay, n.watchInstances)
	n.stop = func() { cancel(); streams.Wait() }
}

// Stop closes the streams and the connections.
func (n *Node) Stop() error {
	n.stop()
	var errs []error
	for _, conn := range n.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Slots returns the client with which device-plugin-host reserves and releases slots.
func (n *Node) Slots() instancev1.InstanceServiceClient { return n.host }

// answers returns when the newest of each stream got its first complete answer: the first and the
// last of these times. The first is long ago if a stream has had none.
func (n *Node) answers() (first, last time.Time) {
	var earliest, latest int64 = math.MaxInt64, 0
	for i := range n.answered {
		at := n.answered[i].Load()
		earliest, latest = min(earliest, at), max(latest, at)
	}
	return time.Unix(0, earliest), time.Unix(0, latest)
}

// Refused adds the number of devices that responses have refused, by reason, to the counts. A
// response that is late has the reason NotWritten for all devices of its report.
func (n *Node) Refused(counts map[string]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for reason, instances := range n.refused {
		counts[reason] += len(instances)
	}
}

// report keeps the server's view of the devices up to date, as discovery-operator does: at most one
// report of a Configuration is unanswered.
func (n *Node) report(ctx context.Context, healthy func()) error {
	stream, err := instancev1.NewInstanceServiceClient(n.operator).ReportDevices(ctx)
	if err != nil {
		return err
	}
	responses, ended := make(chan *instancev1.ReportDevicesResponse), make(chan error, 1)
	go func() { ended <- receive(ctx, stream, responses) }()
	s := &reporting{stream: stream, sent: map[string]*instancev1.ReportDevicesRequest{}, unanswered: map[uint64]string{}}
	answered := sync.OnceFunc(func() { n.answered[reportStream].Store(time.Now().UnixNano()) })
	for {
		reports, changed := n.reports.Get()
		if err := s.send(reports); err != nil {
			return err
		}
		if len(s.unanswered) == 0 {
			answered()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case response := <-responses:
			healthy()
			delete(s.unanswered, response.GetRevision())
			n.refuse(response.GetRefusals())
		case <-changed:
		}
	}
}

func receive(
	ctx context.Context, stream grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse],
	responses chan<- *instancev1.ReportDevicesResponse,
) error {
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case responses <- response:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *Node) refuse(refusals []*instancev1.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, refusal := range refusals {
		if n.refused[refusal.GetReason()] == nil {
			n.refused[refusal.GetReason()] = map[string]bool{}
		}
		n.refused[refusal.GetReason()][refusal.GetInstance()] = true
	}
}

// reporting is the state of a ReportDevices stream.
type reporting struct {
	stream     grpc.BidiStreamingClient[instancev1.ReportDevicesRequest, instancev1.ReportDevicesResponse]
	revision   uint64
	sent       map[string]*instancev1.ReportDevicesRequest // by uid of the Configuration
	unanswered map[uint64]string                           // uids by revision
}

// send sends the reports that have changed.
func (r *reporting) send(reports []*instancev1.ReportDevicesRequest) error {
	waiting := slices.Collect(maps.Values(r.unanswered))
	for _, report := range reports {
		uid := report.GetConfigurationUid()
		if r.sent[uid] == report || slices.Contains(waiting, uid) {
			continue
		}
		r.sent[uid] = report
		r.revision++
		r.unanswered[r.revision] = uid
		// Only this stream changes the revision: a node has one stream at a time.
		report.Revision = r.revision
		if err := r.stream.Send(report); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) watchConfigurations(ctx context.Context, healthy func()) error {
	stream, err := configurationv1.NewConfigurationServiceClient(n.operator).WatchConfigurations(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&configurationv1.WatchConfigurationsRequest{Node: n.Name, Handlers: n.handlers}); err != nil {
		return err
	}
	return n.receiveAll(configurationStream, healthy, func() (complete bool, err error) {
		response, err := stream.Recv()
		return response.GetSnapshot().GetLast(), err
	})
}

func (n *Node) watchInstances(ctx context.Context, healthy func()) error {
	stream, err := n.host.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: n.Name})
	if err != nil {
		return err
	}
	return n.receiveAll(instanceStream, healthy, func() (complete bool, err error) {
		response, err := stream.Recv()
		return !response.GetSnapshot().GetMore(), err
	})
}

// receiveAll calls receive until it fails, and records when the first answer of a stream is
// complete.
func (n *Node) receiveAll(stream int, healthy func(), receive func() (complete bool, err error)) error {
	answered := sync.OnceFunc(func() { n.answered[stream].Store(time.Now().UnixNano()) })
	for {
		complete, err := receive()
		if err != nil {
			return err
		}
		healthy()
		if complete {
			answered()
		}
	}
}
