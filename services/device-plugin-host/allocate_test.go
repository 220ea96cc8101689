package devicepluginhost_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// received is what a container gets for one of the cameras.
func received(instance, hash, url string) *pluginapi.ContainerAllocateResponse {
	return &pluginapi.ContainerAllocateResponse{
		Envs:    map[string]string{"URL": url, "URL_" + hash: url},
		Mounts:  []*pluginapi.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/" + instance, HostPath: "/dev/" + instance, Permissions: "rw"}},
	}
}

func both() *pluginapi.ContainerAllocateResponse {
	response := received(first, "8120FE", "rtsp://second")
	response.Envs["URL_8120FE"] = "rtsp://first"
	response.Envs["URL_A19705"] = "rtsp://second"
	response.Devices = append(response.Devices, &pluginapi.DeviceSpec{ContainerPath: "/dev/" + second, HostPath: "/dev/" + second, Permissions: "rw"})
	return response
}

func requireResponses(t require.TestingT, want, got []*pluginapi.ContainerAllocateResponse) {
	require.Len(t, got, len(want))
	for i := range want {
		require.True(t, proto.Equal(want[i], got[i]), "container %d\nwant %v\ngot  %v", i, want[i], got[i])
	}
}

func TestAllocatingAnInstanceHoldsTheSlotAndGivesTheDevice(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 3)
	resource := "akri.sh/" + first
	m.awaitDevices(resource, all(healthy, first+"-0", first+"-1", first+"-2"))

	got, err := m.kubelet.allocate(resource, ids(first+"-1"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{received(first, "8120FE", "rtsp://first")}, got)
	require.Equal(t, []string{"", "node-a", ""}, m.writer.usage(first), "held before the answer")

	writes := m.writer.writes
	_, err = m.kubelet.allocate(resource, ids(first+"-1"))
	require.NoError(t, err, "the same again is granted")
	require.Equal(t, writes, m.writer.writes)

	got, err = m.kubelet.allocate(resource, ids(first+"-0", first+"-1"), ids(first+"-2"), ids())
	require.NoError(t, err)
	one := received(first, "8120FE", "rtsp://first")
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{one, one, {}}, got)
	require.Equal(t, []string{"node-a", "node-a", "node-a"}, m.writer.usage(first))
}

func TestARefusalIsACodeWithASentence(t *testing.T) {
	m := startMesh(t)
	m.seesCameras()
	m.writer.put(first, "akri-onvif", 2, "", "node-b")
	m.writer.put(second, "akri-onvif", 1)
	m.awaitDevices("akri.sh/"+first, map[string]string{first + "-0": healthy, first + "-1": unhealthy})
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	m.writer.remove(second)
	m.awaitDevices(configuration, map[string]string{"0": healthy, "1": unhealthy})
	m.awaitDevices("akri.sh/"+second, all(unhealthy, second+"-0"))
	for name, c := range map[string]struct {
		resource string
		ids      []string
		code     codes.Code
		message  string
	}{
		"not in the list":       {"akri.sh/" + first, ids(first + "-7"), codes.NotFound, `device "akri-onvif-8120fe-7" is not offered any more`},
		"about to leave it":     {"akri.sh/" + second, ids(second + "-0"), codes.NotFound, `the device of Instance "akri-onvif-a19705" is not seen by node "node-a" at the moment`},
		"another node's":        {"akri.sh/" + first, ids(first + "-1"), codes.FailedPrecondition, `slot akri-onvif-8120fe-1 is held by "node-b"`},
		"more than there are":   {configuration, ids("0", "1"), codes.ResourceExhausted, `cannot choose devices of Configuration "akri-onvif": not enough distinct devices on this node: 2 requested by a container, 1 available`},
		"all or nothing at all": {"akri.sh/" + first, ids(first+"-0", first+"-1"), codes.FailedPrecondition, `slot akri-onvif-8120fe-1 is held by "node-b"`},
	} {
		_, err := m.kubelet.allocate(c.resource, c.ids)
		require.Equal(t, c.code, status.Code(err), name)
		require.Equal(t, c.message, status.Convert(err).Message(), name)
	}
	require.Equal(t, []string{"", "node-b"}, m.writer.usage(first))
}

func TestPropertiesTakeEffectLive(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 1)
	m.operator.set(cameras(camera(first, "rtsp://old")))
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.operator.set(cameras(camera(first, "rtsp://new")))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		require.NoError(c, err)
		requireResponses(c, []*pluginapi.ContainerAllocateResponse{received(first, "8120FE", "rtsp://new")}, got)
	}, soon, 2e6)
}

func TestWorkedExamplesOfConfigurationLevelResources(t *testing.T) {
	for name, c := range map[string]struct {
		first, second []string // deviceUsage before
		shown         []string
		containers    [][]string
		want          []*pluginapi.ContainerAllocateResponse
		code          codes.Code
		then          [2][]string
	}{
		"0 and 3 in one container": {
			first: ids("", ""), second: ids("", "C:3:node-a"), shown: ids("0", "1", "3"), containers: [][]string{{"0", "3"}},
			want: []*pluginapi.ContainerAllocateResponse{both()},
			then: [2][]string{{"C:0:node-a", ""}, {"", "C:3:node-a"}},
		},
		"0, 1 and 3 in one container": {
			first: ids("", ""), second: ids("", "C:3:node-a"), shown: ids("0", "1", "3"), containers: [][]string{{"0", "1", "3"}},
			code: codes.ResourceExhausted, then: [2][]string{{"", ""}, {"", "C:3:node-a"}},
		},
		"0 and 1 in one container, 3 in another": {
			first: ids("", ""), second: ids("", "C:3:node-a"), shown: ids("0", "1", "3"), containers: [][]string{{"0", "1"}, {"3"}},
			want: []*pluginapi.ContainerAllocateResponse{both(), received(second, "A19705", "rtsp://second")},
			then: [2][]string{{"C:0:node-a", ""}, {"C:1:node-a", "C:3:node-a"}},
		},
		"0 and 1 when both are of one camera": {
			first: ids("C:0:node-a", "C:1:node-a"), second: ids("C:2:node-a", "C:3:node-a"), shown: ids("0", "1", "2", "3"), containers: [][]string{{"0", "1"}},
			code: codes.ResourceExhausted, then: [2][]string{{"C:0:node-a", "C:1:node-a"}, {"C:2:node-a", "C:3:node-a"}},
		},
		"0 and 1 when all is free": {
			first: ids("", ""), second: ids("", ""), shown: ids("0", "1"), containers: [][]string{{"0"}, {"1"}},
			want: []*pluginapi.ContainerAllocateResponse{received(first, "8120FE", "rtsp://first"), received(second, "A19705", "rtsp://second")},
			then: [2][]string{{"C:0:node-a", ""}, {"C:1:node-a", ""}},
		},
		"4 was claimed": {
			first: ids("", "C:4:node-a"), second: ids("", ""), shown: ids("0", "1", "4"), containers: [][]string{{"4"}},
			want: []*pluginapi.ContainerAllocateResponse{received(first, "8120FE", "rtsp://first")},
			then: [2][]string{{"", "C:4:node-a"}, {"", ""}},
		},
		"an id that Akri 0.13 wrote": {
			first: ids("C:akri-onvif-0:node-a", ""), second: ids("", ""), shown: ids("0", "1", "akri-onvif-0"), containers: [][]string{{"akri-onvif-0"}},
			want: []*pluginapi.ContainerAllocateResponse{received(first, "8120FE", "rtsp://first")},
			then: [2][]string{{"C:akri-onvif-0:node-a", ""}, {"", ""}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := startMesh(t)
			m.writer.put(first, "akri-onvif", 2, c.first...)
			m.writer.put(second, "akri-onvif", 2, c.second...)
			m.seesCameras()
			m.awaitDevices(configuration, all(healthy, c.shown...))
			got, err := m.kubelet.allocate(configuration, c.containers...)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			requireResponses(t, c.want, got)
			require.Equal(t, c.then, [2][]string{m.writer.usage(first), m.writer.usage(second)})
		})
	}
}

func TestAConfigurationFindsAnotherSlotWhenAnotherNodeWasFaster(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 2)
	m.seesCameras()
	m.awaitDevices(configuration, all(healthy, "0"))
	m.writer.setDeaf(true) // what follows is not heard of before the reservation is refused
	m.writer.put(first, "akri-onvif", 2, "node-b")
	answered := make(chan error, 1)
	go func() {
		_, err := m.kubelet.allocate(configuration, ids("0"))
		answered <- err
	}()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.Equal(c, 1, m.writer.refused()) }, soon, 2e6)
	m.writer.setDeaf(false)
	require.NoError(t, <-answered)
	require.Equal(t, []string{"node-b", "C:0:node-a"}, m.writer.usage(first))
}

func TestAllocateOutlastsARestartOfTheWriter(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 2)
	m.seesCameras()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1"))
	m.stopWriter()
	answered := make(chan error, 1)
	go func() {
		_, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
		answered <- err
	}()
	m.startWriter()
	require.NoError(t, <-answered)
	require.Equal(t, []string{"node-a", ""}, m.writer.usage(first))

	m.writer.failNext(status.Error(codes.Unavailable, "conflict"), status.Error(codes.Unavailable, "conflict"))
	_, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-1"))
	require.NoError(t, err, "an answer that may heal is tried again")
}

func TestAWriterThatStaysAwayIsNamedInTheRefusal(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 1)
	m.seesCameras()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
	m.stopWriter()
	_, err := m.kubelet.allocate("akri.sh/"+first, ids(first+"-0"))
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.ErrorContains(t, err, "cannot reserve "+first+"-0: instance-writer did not do it within 8s")
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0"))
}

func TestPreferredDevices(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 4, "", "node-a")
	m.writer.put(second, "akri-onvif", 2, "C:0:node-a", "C:1:node-a")
	m.seesCameras()
	m.awaitDevices("akri.sh/"+first, all(healthy, first+"-0", first+"-1", first+"-2", first+"-3"))
	m.awaitDevices(configuration, all(healthy, "0", "1", "2"))

	got := m.prefer(t, "akri.sh/"+first, 3, nil, first+"-0", first+"-1", first+"-2", first+"-3")
	require.ElementsMatch(t, []string{first + "-0", first + "-2", first + "-3"}, got, "free ones first")
	got = m.prefer(t, "akri.sh/"+first, 2, ids(first+"-1"), first+"-0", first+"-1")
	require.Equal(t, []string{first + "-1", first + "-0"}, got)
	require.Equal(t, []string{"2", "0"}, m.prefer(t, configuration, 2, nil, "0", "1", "2"), "of different Instances")
}

func (m *mesh) prefer(t *testing.T, resource string, size int32, include []string, available ...string) []string {
	t.Helper()
	response, err := m.kubelet.client(resource).GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: available, MustIncludeDeviceIDs: include, AllocationSize: size}},
	})
	require.NoError(t, err)
	require.Len(t, response.GetContainerResponses(), 1)
	return response.GetContainerResponses()[0].GetDeviceIDs()
}

func TestSeveralDevicesShareWhatTheyShare(t *testing.T) {
	m := startMesh(t)
	m.writer.put(first, "akri-onvif", 1)
	m.writer.put(second, "akri-onvif", 1)
	one, two := camera(first, "a"), camera(second, "b")
	one.Properties["KIND"], two.Properties["ONLY"] = "dome", "two"
	null := &discoveryv1.DeviceNode{HostPath: "/dev/null", ContainerPath: "/dev/cam", Permissions: "r"}
	one.DeviceNodes, two.DeviceNodes = []*discoveryv1.DeviceNode{null}, []*discoveryv1.DeviceNode{null}
	m.operator.set(cameras(one, two))
	m.awaitDevices(configuration, all(healthy, "0", "1"))
	got, err := m.kubelet.allocate(configuration, ids("1", "0"))
	require.NoError(t, err)
	requireResponses(t, []*pluginapi.ContainerAllocateResponse{{
		Envs: map[string]string{
			"URL": "b", "URL_8120FE": "a", "URL_A19705": "b", "KIND": "dome", "KIND_8120FE": "dome", "ONLY": "two", "ONLY_A19705": "two",
		},
		Mounts:  []*pluginapi.Mount{{ContainerPath: "/etc/camera", HostPath: "/etc/akri/camera", ReadOnly: true}},
		Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/cam", HostPath: "/dev/null", Permissions: "r"}},
	}}, got)
}
