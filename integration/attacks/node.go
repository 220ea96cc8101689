package attacks

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Node is an attack on instance-writer with the identities of the services of a node.
type Node struct {
	Name string
	// Reporter and Reserver are connections with the identities of discovery-operator and
	// device-plugin-host.
	Reporter, Reserver *grpc.ClientConn
	// Victims are Instances of other nodes, in any namespace.
	Victims []types.NamespacedName
	// Configurations are the names and uids of Configurations in the namespace default.
	Configurations map[string]string
	// Handlers are those that the node claims to have when it watches Configurations.
	Handlers []string
	// Marker is a text that no response may contain.
	Marker string
	// Foreign is a namespace that no response about Instances may contain. The names of all
	// Configurations are sent to each node.
	Foreign string
	Counts  Counts
	// Leaked is the number of responses with one of these texts.
	Leaked atomic.Int64
}

const (
	namespace = "default"
	// reportBytes is below the limit of a message.
	reportBytes   = 3 << 20
	propertyBytes = 2 << 10
	// guesses and ownDevices are the slots in a call, each of which counts as 16 KiB of what a node
	// may send. With more, no call of a short attack would get a response.
	guesses    = 100
	ownDevices = 10
	// watchDuration is long enough for the snapshot and for changes.
	watchDuration = 3 * time.Second
)

// Run attacks until ctx ends.
func (n *Node) Run(ctx context.Context) {
	var group sync.WaitGroup
	for name, attack := range map[string]func(context.Context) error{
		"reports": n.report, "watch of Configurations": n.watchConfigurations, "watch of Instances": n.watchInstances,
		"reservations": n.reserve, "releases": n.release, "own devices": n.reserveOwn,
	} {
		group.Go(func() {
			repeat(ctx, func() {
				if err := attack(ctx); ctx.Err() == nil {
					n.Counts.add(name, status.Code(err))
				}
			})
		})
	}
	group.Wait()
}

// Check looks for texts in a response that it may not contain.
func (n *Node) Check(response proto.Message, texts ...string) {
	text, err := proto.Marshal(response)
	leaked := func(secret string) bool { return bytes.Contains(text, []byte(secret)) }
	if err != nil || slices.ContainsFunc(texts, leaked) {
		n.Leaked.Add(1)
	}
}

// watch checks the responses of a stream until it fails. That its time is over is no failure.
func watch[T proto.Message](ctx context.Context, n *Node, receive func() (T, error), texts ...string) error {
	for {
		response, err := receive()
		switch {
		case err == nil:
			n.Check(response, texts...)
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
	}
}

// report sends large reports with many handlers and problems about all Configurations.
func (n *Node) report(ctx context.Context) error {
	stream, err := instancev1.NewInstanceServiceClient(n.Reporter).ReportDevices(ctx)
	if err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			n.Check(response, n.Marker, n.Foreign)
			n.Counts.add("reports", fmt.Sprintf("response with refusals: %t", len(response.GetRefusals()) > 0))
		}
	}()

	revision := uint64(0)
	for {
		for name, uid := range n.Configurations {
			revision++
			report := n.hostileReport(name)
			report.Node, report.Revision, report.Namespace, report.Configuration, report.ConfigurationUid = n.Name, revision, namespace, name, uid
			if err := stream.Send(report); err != nil {
				return <-ended
			}
		}
	}
}

// hostileReport returns a report with too many devices, handlers or problems.
func (n *Node) hostileReport(configuration string) *instancev1.ReportDevicesRequest {
	report := &instancev1.ReportDevicesRequest{Complete: rand.IntN(2) == 0, Answered: true}

	switch rand.IntN(3) {
	case 0:
		value := strings.Repeat(string(rune('a'+rand.IntN(26))), propertyBytes)
		for i := range reportBytes / propertyBytes {
			id := fmt.Sprintf("%s-%d-%d", n.Name, rand.IntN(4), i)
			shared := rand.IntN(2) == 0
			report.Devices = append(report.Devices, &discoveryv1.Device{
				Instance: n.instance(configuration, id, shared), Id: id, Shared: shared,
				Properties: map[string]string{"X": value},
			})
		}
	case 1:
		for i := range 50_000 {
			report.Handlers = append(report.Handlers, &instancev1.HandlerState{Name: "h", Endpoint: fmt.Sprint(i), Status: "Active"})
		}
	case 2:
		for range 1000 {
			report.Problems = append(report.Problems, &instancev1.Problem{Reason: "InvalidDetails", Message: "grant the right with: \x1b[31m" + strings.Repeat("m", 2000)})
		}
	}

	return report
}

// instance returns the name of the Instance of a device of the node.
func (n *Node) instance(configuration, id string, shared bool) string {
	return akriv0.InstanceName(configuration, akriv0.Digest(id, n.Name, shared))
}

func (n *Node) watchConfigurations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchDuration)
	defer cancel()
	stream, err := configurationv1.NewConfigurationServiceClient(n.Reporter).WatchConfigurations(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&configurationv1.WatchConfigurationsRequest{Node: n.Name, Handlers: n.Handlers}); err != nil {
		return err
	}
	return watch(ctx, n, stream.Recv, n.Marker)
}

func (n *Node) watchInstances(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchDuration)
	defer cancel()
	stream, err := instancev1.NewInstanceServiceClient(n.Reserver).WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: n.Name})
	if err != nil {
		return err
	}
	return watch(ctx, n, stream.Recv, n.Marker, n.Foreign)
}

// reserve reserves slots of devices that the node does not see.
func (n *Node) reserve(ctx context.Context) error {
	request := &instancev1.ReserveSlotsRequest{Node: n.Name, Claims: n.claims(len(n.Victims))}
	response, err := instancev1.NewInstanceServiceClient(n.Reserver).ReserveSlots(ctx, request)
	n.Check(response, n.Marker, n.Foreign)
	return err
}

// reserveOwn reserves and releases slots of devices that the node reports.
func (n *Node) reserveOwn(ctx context.Context) error {
	client := instancev1.NewInstanceServiceClient(n.Reserver)
	for configuration := range n.Configurations {
		var claims []*instancev1.SlotClaim
		for i := range ownDevices {
			name := n.instance(configuration, fmt.Sprintf("%s-0-%d", n.Name, i), false)
			claims = append(claims, &instancev1.SlotClaim{Namespace: namespace, Instance: name})
		}

		for _, claim := range claims {
			_, err := client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: n.Name, Claims: []*instancev1.SlotClaim{claim}})
			if ctx.Err() == nil {
				n.Counts.add("own devices", status.Code(err))
			}
			if err != nil && status.Code(err) != codes.NotFound {
				return err
			}
		}

		if _, err := client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: n.Name, Claims: claims}); err != nil {
			return err
		}
	}
	return nil
}

// release guesses names of Instances.
func (n *Node) release(ctx context.Context) error {
	request := &instancev1.ReleaseSlotsRequest{Node: n.Name, Claims: n.claims(guesses)}
	response, err := instancev1.NewInstanceServiceClient(n.Reserver).ReleaseSlots(ctx, request)
	n.Check(response, n.Marker, n.Foreign)
	return err
}

// claims are slots of the victims and of guessed Instances.
func (n *Node) claims(count int) (claims []*instancev1.SlotClaim) {
	for _, victim := range n.Victims {
		claims = append(claims, &instancev1.SlotClaim{Namespace: victim.Namespace, Instance: victim.Name})
	}
	for len(claims) < count {
		claims = append(claims, &instancev1.SlotClaim{Namespace: namespace, Instance: fmt.Sprintf("camera-%06x", rand.IntN(1<<24))})
	}
	return claims
}
