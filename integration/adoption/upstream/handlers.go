package upstream

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/yaml"

	discoveryv0 "akri.sh/proto/v0"
)

// interval is the time between two looks at the devices, and between two attempts to register.
const interval = 10 * time.Second

// Handler is a stand-in for a Discovery Handler that uses upstream's library. It registers when it
// starts, and again when it finds that a stream has ended. It looks for that only every ten
// seconds, and a handler without a stream never registers again.
type Handler struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer

	Name   string
	Dir    string // upstream's DISCOVERY_HANDLERS_DIRECTORY
	Shared bool
	// List returns the devices for the details of a Configuration.
	List func(details string) ([]*discoveryv0.Device, error)
	// Announces is set if the handler also sends a first list without devices. Of upstream's
	// handlers, only debugEcho does.
	Announces bool
	Log       *zap.Logger

	again chan struct{}
}

// Run serves and registers until ctx ends. An error of the registration ends it.
func (h *Handler) Run(ctx context.Context) error {
	h.again = make(chan struct{}, 1)
	server := grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(server, h)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, server, h.endpoint()) })
	group.Go(func() error {
		for {
			if err := h.register(ctx); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-h.again:
			}
		}
	})
	return group.Wait()
}

func (h *Handler) endpoint() string { return filepath.Join(h.Dir, h.Name+".sock") }

// register registers. While the socket of the agent cannot be reached, it tries again.
func (h *Handler) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(h.Dir, "agent-registration.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("dial agent: %w", err)
	}
	defer conn.Close()
	for {
		_, err := discoveryv0.NewRegistrationClient(conn).RegisterDiscoveryHandler(ctx, &discoveryv0.RegisterDiscoveryHandlerRequest{
			Name: h.Name, Endpoint: h.endpoint(), EndpointType: discoveryv0.RegisterDiscoveryHandlerRequest_UDS, Shared: h.Shared,
		})
		if status.Code(err) != codes.Unavailable {
			h.Log.Info("registered", zap.Error(err))
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// Discover sends the devices at the start and when they have changed.
func (h *Handler) Discover(request *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	sent := []string{}
	for first := h.Announces; ; first = false {
		devices, err := h.List(request.GetDiscoveryDetails())
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		ids := []string{}
		for _, device := range devices {
			ids = append(ids, device.GetId())
		}
		if first || !slices.Equal(ids, sent) {
			err = stream.Send(&discoveryv0.DiscoverResponse{Devices: devices})
		}
		sent = ids
		if err != nil || stream.Context().Err() != nil {
			h.registerAgain()
			return nil
		}
		<-time.After(interval) // also if the stream ends meanwhile
	}
}

func (h *Handler) registerAgain() {
	select {
	case h.again <- struct{}{}:
	default:
	}
}

// Echo returns the devices of the handler debugEcho: the descriptions in the details, or none while
// the file contains OFFLINE.
func Echo(file string) func(string) ([]*discoveryv0.Device, error) {
	return func(text string) ([]*discoveryv0.Device, error) {
		var details struct {
			Descriptions []string `json:"descriptions"`
		}
		if err := yaml.Unmarshal([]byte(text), &details); err != nil {
			return nil, fmt.Errorf("decode discoveryDetails: %w", err)
		}
		availability, _ := os.ReadFile(file) // it need not exist
		if strings.Contains(string(availability), "OFFLINE") {
			return nil, nil
		}
		var devices []*discoveryv0.Device
		for _, description := range details.Descriptions {
			devices = append(devices, &discoveryv0.Device{
				Id: description, Properties: map[string]string{"DEBUG_ECHO_DESCRIPTION": description},
			})
		}
		return devices, nil
	}
}

// BlockDevices returns the devices of the handler udev for rules that select virtual block devices
// by KERNEL. The stand-in reads sysfs instead of udev's database.
func BlockDevices(text string) ([]*discoveryv0.Device, error) {
	var details struct {
		UdevRules []string `json:"udevRules"`
	}
	if err := yaml.Unmarshal([]byte(text), &details); err != nil {
		return nil, fmt.Errorf("decode discoveryDetails: %w", err)
	}
	found, err := filepath.Glob("/sys/devices/virtual/block/*")
	if err != nil {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var devices []*discoveryv0.Device
	for _, directory := range found {
		if name := filepath.Base(directory); slices.ContainsFunc(details.UdevRules, func(rule string) bool { return selects(rule, name) }) {
			devices = append(devices, blockDevice(strings.TrimPrefix(directory, "/sys"), "/dev/"+name))
		}
	}
	return devices, nil
}

// selects reports whether a rule has KERNEL=="<pattern>" with a pattern that matches the name.
func selects(rule, name string) bool {
	_, after, found := strings.Cut(rule, `KERNEL=="`)
	pattern, _, closed := strings.Cut(after, `"`)
	matched, err := path.Match(pattern, name)
	return found && closed && err == nil && matched
}

func blockDevice(devpath, devnode string) *discoveryv0.Device {
	return &discoveryv0.Device{
		Id: devpath, Properties: map[string]string{"UDEV_DEVPATH": devpath, "UDEV_DEVNODE": devnode},
		DeviceSpecs: []*discoveryv0.DeviceSpec{{ContainerPath: devnode, HostPath: devnode, Permissions: "rwm"}},
	}
}
