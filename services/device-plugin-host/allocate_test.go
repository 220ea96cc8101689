package devicepluginhost_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	discoveryv0 "akri.sh/proto/v0"
)

// response returns the response for a container with one of the cameras.
func response(instance, hash, url string) *pluginapi.ContainerAllocateResponse {
	return &pluginapi.ContainerAllocateResponse{
		Envs:    map[string]string{"URL": url, "URL_" + hash: url},
		Mounts:  []*pluginapi.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/" + instance, HostPath: "/dev/" + instance, Permissions: "rw"}},
	}
}

// responseForBoth returns the response for a container with both cameras.
func responseForBoth() *pluginapi.ContainerAllocateResponse {
	both := response(first, "8120FE", "rtsp://second")
	both.Envs["URL_8120FE"] = "rtsp://first"
	both.Envs["URL_A19705"] = "rtsp://second"
	both.Devices = append(both.Devices, &pluginapi.DeviceSpec{ContainerPath: "/dev/" + second, HostPath: "/dev/" + second, Permissions: "rw"})
	return both
}

func requireResponses(t require.TestingT, expected, actual []*pluginapi.ContainerAllocateResponse) {
	require.Len(t, actual, len(expected))
	for i := range expected {
		require.True(t, proto.Equal(expected[i], actual[i]), "container %d\nexpected %v\nactual   %v", i, expected[i], actual[i])
	}
}

func TestAllocateInstanceReservesSlot(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 3)
	resource := "akri.sh/" + first
	f.awaitDevices(resource, all(healthy, first+"-0", first+"-1", first+"-2"))

	responses, err := f.kubelet.allocate(resource, ids(first+"-1"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://first")}, responses)
	require.Equal(t, []string{"", "node-a", ""}, f.writer.Usage(first), "reserved before the response")

	writes := f.writer.Writes()
	_, err = f.kubelet.allocate(resource, ids(first+"-1"))
	require.NoError(t, err, "a repeated call succeeds")
	require.Equal(t, writes, f.writer.Writes())

	responses, err = f.kubelet.allocate(resource, ids(first+"-0", first+"-1"), ids(first+"-2"), ids())
	require.NoError(t, err)
	expected := response(first, "8120FE", "rtsp://first")
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{expected, expected, {}}, responses)
	require.Equal(t, []string{"node-a", "node-a", "node-a"}, f.writer.Usage(first))
}

// A container gets the device of its Instance, and not another device with the same short name.
func TestAllocateColliding(t *testing.T) {
	const long = first + "x55e2ca"
	f := startFixture(t)
	one, two := camera(first, "rtsp://first"), camera(first, "rtsp://second")
	one.Id, two.Id = "one", "two"
	two.DeviceNodes[0] = &discoveryv0.DeviceSpec{HostPath: "/dev/" + long, ContainerPath: "/dev/" + long, Permissions: "rw"}
	f.operator.set(cameras(one, two))
	f.writer.PutDevice("one", first, "akri-onvif", 1)
	f.writer.PutDevice("two", long, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.awaitDevices("akri.sh/"+long, all(healthy, long+"-0"))

	responses, err := f.kubelet.allocate("akri.sh/"+long, ids(long+"-0"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{response(long, "8120FEX55E2CA", "rtsp://second")}, responses)
	require.Equal(t, []string{"node-a"}, f.writer.Usage(long))
	require.Equal(t, []string{""}, f.writer.Usage(first))
	responses, err = f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://first")}, responses)
}

func TestAllocateRefusals(t *testing.T) {
	f := startFixture(t)
	f.seeCameras()
	f.writer.Put(first, "akri-onvif", 2, "", "node-b")
	f.writer.Put(second, "akri-onvif", 1)
	f.awaitDevices("akri.sh/"+first, map[string]string{first + "-0": healthy, first + "-1": unhealthy})
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	f.writer.Remove(second)
	f.awaitDevices(configuration, map[string]string{"0": healthy, "1": unhealthy})
	f.awaitDevices("akri.sh/"+second, all(unhealthy, second+"-0"))
	for name, c := range map[string]struct {
		resource string
		ids      []string
		code     codes.Code
		message  string
	}{
		"not in the list":      {"akri.sh/" + first, ids(first + "-7"), codes.NotFound, `device "akri-onvif-8120fe-7" no longer exists on this node`},
		"about to be removed":  {"akri.sh/" + second, ids(second + "-0"), codes.NotFound, `node "node-a" does not see the device of Instance "akri-onvif-a19705"`},
		"held by another node": {"akri.sh/" + first, ids(first + "-1"), codes.FailedPrecondition, `slot akri-onvif-8120fe-1 is held by "node-b"`},
		"more than available":  {configuration, ids("0", "1"), codes.ResourceExhausted, `choose devices of Configuration "akri-onvif": not enough distinct devices on this node: 2 requested by a container, 1 available`},
		"one of two is held":   {"akri.sh/" + first, ids(first+"-0", first+"-1"), codes.FailedPrecondition, `slot akri-onvif-8120fe-1 is held by "node-b"`},
	} {
		_, err := f.kubelet.allocate(c.resource, c.ids)
		require.Equal(t, c.code, status.Code(err), name)
		require.Equal(t, c.message, status.Convert(err).Message(), name)
	}
	require.Equal(t, []string{"", "node-b"}, f.writer.Usage(first))
}

func TestAllocateReturnsCurrentProperties(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 1)
	f.operator.set(cameras(camera(first, "rtsp://old")))
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.operator.set(cameras(camera(first, "rtsp://new")))
	f.eventually(func(c *assert.CollectT) {
		responses, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		require.NoError(c, err)
		requireResponses(c, []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://new")}, responses)
	})
}

func TestAllocateConfigurationExamples(t *testing.T) {
	for name, c := range map[string]struct {
		first, second []string // deviceUsage before
		devices       []string
		containers    [][]string
		expected      []*pluginapi.ContainerAllocateResponse
		code          codes.Code
		usage         [2][]string // deviceUsage after
	}{
		"0 and 3 in one container": {
			first: ids("", ""), second: ids("", "C:3:node-a"), devices: ids("0", "1", "3"), containers: [][]string{{"0", "3"}},
			expected: []*pluginapi.ContainerAllocateResponse{responseForBoth()},
			usage:    [2][]string{{"C:0:node-a", ""}, {"", "C:3:node-a"}},
		},
		"0, 1 and 3 in one container": {
			first: ids("", ""), second: ids("", "C:3:node-a"), devices: ids("0", "1", "3"), containers: [][]string{{"0", "1", "3"}},
			code: codes.ResourceExhausted, usage: [2][]string{{"", ""}, {"", "C:3:node-a"}},
		},
		"0 and 1 in one container, 3 in another": {
			first: ids("", ""), second: ids("", "C:3:node-a"), devices: ids("0", "1", "3"), containers: [][]string{{"0", "1"}, {"3"}},
			expected: []*pluginapi.ContainerAllocateResponse{responseForBoth(), response(second, "A19705", "rtsp://second")},
			usage:    [2][]string{{"C:0:node-a", ""}, {"C:1:node-a", "C:3:node-a"}},
		},
		"0 and 1 of the same camera": {
			first: ids("C:0:node-a", "C:1:node-a"), second: ids("C:2:node-a", "C:3:node-a"), devices: ids("0", "1", "2", "3"), containers: [][]string{{"0", "1"}},
			code: codes.ResourceExhausted, usage: [2][]string{{"C:0:node-a", "C:1:node-a"}, {"C:2:node-a", "C:3:node-a"}},
		},
		"0 and 1 in two containers, all slots free": {
			first: ids("", ""), second: ids("", ""), devices: ids("0", "1"), containers: [][]string{{"0"}, {"1"}},
			expected: []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://first"), response(second, "A19705", "rtsp://second")},
			usage:    [2][]string{{"C:0:node-a", ""}, {"C:1:node-a", ""}},
		},
		"claimed id 4": {
			first: ids("", "C:4:node-a"), second: ids("", ""), devices: ids("0", "1", "4"), containers: [][]string{{"4"}},
			expected: []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://first")},
			usage:    [2][]string{{"", "C:4:node-a"}, {"", ""}},
		},
		"an id of upstream Akri 0.13": {
			first: ids("C:akri-onvif-0:node-a", ""), second: ids("", ""), devices: ids("0", "1", "akri-onvif-0"), containers: [][]string{{"akri-onvif-0"}},
			expected: []*pluginapi.ContainerAllocateResponse{response(first, "8120FE", "rtsp://first")},
			usage:    [2][]string{{"C:akri-onvif-0:node-a", ""}, {"", ""}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFixture(t)
			f.writer.Put(first, "akri-onvif", 2, c.first...)
			f.writer.Put(second, "akri-onvif", 2, c.second...)
			f.seeCameras()
			f.awaitDevices(configuration, all(healthy, c.devices...))
			responses, err := f.kubelet.allocate(configuration, c.containers...)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			requireResponses(t, c.expected, responses)
			require.Equal(t, c.usage, [2][]string{f.writer.Usage(first), f.writer.Usage(second)})
		})
	}
}

func TestAllocateRetriesWithAnotherSlot(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 2)
	f.seeCameras()
	f.awaitDevices(configuration, all(healthy, "0"))
	f.writer.SetPaused(true) // the next change is sent after the reservation is refused
	f.writer.Put(first, "akri-onvif", 2, "node-b")
	answered := make(chan error, 1)
	go func() {
		_, err := f.kubelet.allocate(configuration, ids("0"))
		answered <- err
	}()
	f.eventually(func(c *assert.CollectT) { require.Equal(c, 1, f.writer.Refused()) })
	f.writer.SetPaused(false)
	require.NoError(t, <-answered)
	require.Equal(t, []string{"node-b", "C:0:node-a"}, f.writer.Usage(first))
}

func TestAllocateSurvivesWriterRestart(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 2)
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	f.stopWriter()
	answered := make(chan error, 1)
	go func() {
		_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		answered <- err
	}()
	f.startWriter()
	require.NoError(t, <-answered)
	require.Equal(t, []string{"node-a", ""}, f.writer.Usage(first))

	f.writer.FailNext(status.Error(codes.Unavailable, "conflict"), status.Error(codes.Unavailable, "conflict"))
	_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-1"))
	require.NoError(t, err, "a transient error is retried")
}

func TestAllocateFailsWithoutWriter(t *testing.T) {
	t.Parallel()
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 1)
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	f.stopWriter()
	_, err := f.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "reserve "+first+"-0: instance-writer did not confirm it within 8s")
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestPreferredAllocation(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 4, "", "node-a")
	f.writer.Put(second, "akri-onvif", 2, "C:0:node-a", "C:1:node-a")
	f.seeCameras()
	f.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1", first+"-2", first+"-3"))
	f.awaitDevices(configuration, all(healthy, "0", "1", "2"))

	chosen := f.prefer(t, "akri.sh/"+first, 3, nil, first+"-0", first+"-1", first+"-2", first+"-3")
	require.ElementsMatch(t, []string{first + "-0", first + "-2", first + "-3"}, chosen, "free slots first")
	chosen = f.prefer(t, "akri.sh/"+first, 2, ids(first+"-1"), first+"-0", first+"-1")
	require.Equal(t, []string{first + "-1", first + "-0"}, chosen)
	require.Equal(t, []string{"2", "0"}, f.prefer(t, configuration, 2, nil, "0", "1", "2"), "devices of different Instances")
}

func (f *fixture) prefer(t *testing.T, resource string, size int32, include []string, available ...string) []string {
	t.Helper()
	response, err := f.kubelet.client(resource).GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: available, MustIncludeDeviceIDs: include, AllocationSize: size}},
	})
	require.NoError(t, err)
	require.Len(t, response.GetContainerResponses(), 1)
	return response.GetContainerResponses()[0].GetDeviceIDs()
}

func TestAllocateMergesDevices(t *testing.T) {
	f := startFixture(t)
	f.writer.Put(first, "akri-onvif", 1)
	f.writer.Put(second, "akri-onvif", 1)
	one, two := camera(first, "a"), camera(second, "b")
	one.Properties["KIND"], two.Properties["ONLY"] = "dome", "two"
	null := &discoveryv0.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/cam", Permissions: "r"}
	one.DeviceNodes, two.DeviceNodes = []*discoveryv0.DeviceSpec{null}, []*discoveryv0.DeviceSpec{null}
	f.operator.set(cameras(one, two))
	f.awaitDevices(configuration, all(healthy, "0", "1"))
	responses, err := f.kubelet.allocate(configuration, ids("1", "0"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{{
		Envs: map[string]string{
			"URL": "b", "URL_8120FE": "a", "URL_A19705": "b", "KIND": "dome", "KIND_8120FE": "dome", "ONLY": "two", "ONLY_A19705": "two",
		},
		Mounts:  []*pluginapi.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/cam", HostPath: "/dev/null", Permissions: "r"}},
	}}, responses)
}
