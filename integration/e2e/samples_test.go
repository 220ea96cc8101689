package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials/insecure"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/proto/opcuanode"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices"
	"akri.sh/integration/devices/camera"
	"akri.sh/integration/devices/opcua"
	"akri.sh/integration/devices/rtsp"
	"akri.sh/integration/mesh"
)

// sample returns a file of deploy/samples with replacements, which are pairs of a text and its
// replacement.
func sample(t *testing.T, name string, replacements ...string) string {
	t.Helper()
	text, err := akri.Manifest("deploy", "samples", name)
	require.NoError(t, err)
	for i := 0; i < len(replacements); i += 2 {
		require.Contains(t, text, replacements[i])
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	return text
}

// samplesOfTheReadme runs the commands of docs/start.md and of the README, and a Pod that requests
// a device of a sample. The Jobs of another sample complete.
func samplesOfTheReadme(t *testing.T) {
	start := tutorialOf(t, "start.md", "debug-echo.yaml", sample(t, "debug-echo.yaml"))
	require.Contains(t, start("Try it"), "debug-echo-8120fe")
	require.Contains(t, readme(t), "debug-echo-8120fe")
	for _, name := range []string{"deployment-configuration-level.yaml", "deployment-instance-level.yaml", "debug-echo-job.yaml"} {
		apply(t, sample(t, name))
	}
	// Two nodes that reserve the same slot at the same time refuse one of the Pods.
	awaitRunning(t, "deployment-configuration-level", 1)
	awaitRunning(t, "deployment-instance-level", 1)
	apply(t, ownPod("readme", "configuration-level-8120fe"))
	pod := awaitReadyPod(t, "default", "readme")
	require.Equal(t, "foo0", query(t, pod).Env["DEBUG_ECHO_DESCRIPTION_8120FE"])

	jobs := akri.Kubernetes.BatchV1().Jobs("default")
	awaitObjects(t, "completed Jobs of debug-echo-job", jobs, ofConfiguration("debug-echo-job"), func(found []batchv1.Job) error {
		var succeeded int32
		for _, job := range found {
			succeeded += job.Status.Succeeded
		}
		if succeeded != 2 {
			return fmt.Errorf("%d Pods of %d Jobs have succeeded", succeeded, len(found))
		}
		return nil
	})
}

const (
	videoGroup   = 44
	dialoutGroup = 20
	seccomp      = "seccompProfile: {type: RuntimeDefault}"
)

// cameraSample runs the tutorial. In the sample it replaces only the rule, which the emulated
// camera cannot match, and the seccomp profile, which emulates the camera. The rule is tested in
// handler-udev. The Service of each camera has frames of its broker, and that of the Configuration
// has frames of all. In a browser, the page shows the moving pictures of all cameras. The brokers
// of the Configuration that the chart creates from values have frames, too.
func cameraSample(t *testing.T) {
	cameraSecret.Lock()
	t.Cleanup(cameraSecret.Unlock)
	var images [][]byte
	for shade := range cameraShades {
		images = append(images, mjpg(t, cameraSize, color.RGBA{R: 200, G: uint8(shade * shadeStep), A: 255}))
	}
	device, err := camera.Plug(t.Context(), images, cameraSize, cameraSize)
	require.NoError(t, err)
	t.Cleanup(func() { unplug(t, device) })
	share(t, device.Node(), videoGroup)
	serveCamera(t, device)

	emulated := []string{
		`SUBSYSTEM=="video4linux", SUBSYSTEMS=="usb", ENV{ID_V4L_CAPABILITIES}=="*:capture:*"`, fmt.Sprintf("KERNEL==%q", filepath.Base(device.Node())),
		seccomp, "seccompProfile: {type: Localhost, localhostProfile: camera.json}",
	}
	run := tutorialOf(t, "tutorials/usb-camera.md", "udev-usb-camera.yaml", sample(t, "udev-usb-camera.yaml", emulated...))
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(sample(t, "values/udev-usb-camera.yaml", append(emulated, "tag: v0.1.0", "tag: "+mesh.DevTag)...)), 0o600))
	t.Cleanup(func() {
		shell(t, "helm uninstall usb --namespace default --ignore-not-found\nkubectl delete --ignore-not-found secret camera-broker")
	})

	dir := t.TempDir() + "/"
	files := []string{"tls.crt", dir + "tls.crt", "tls.key", dir + "tls.key", "--output snapshot", "--output " + dir + "snapshot", "port-forward.log", dir + "port-forward.log"}
	run("Create a certificate and a token", files...)
	require.Contains(t, run("Discover it"), fmt.Sprintf(`"UDEV_DEVNODE":%q`, device.Node()))
	run("Watch the video", files...)

	brokers := awaitBrokers(t, "default", "udev-usb-camera", len(akri.Cluster.Nodes()))
	var names []string // of the cameras
	for _, pod := range brokers {
		names = append(names, pod.Name)
		client := clientOf(t, "pod/"+pod.Name, "8083")
		shadeOf(t, snapshot(t, client))
		requireFrames(t, client, 3)
		requireShades(t, &brokers[0], pod.Labels[mesh.InstanceLabel]+"-svc", pod.Name)
	}
	requireShades(t, &brokers[0], "udev-usb-camera-svc", names...)

	// The page must be closed before its server ends.
	require.True(t, t.Run("page", func(t *testing.T) {
		viewer := clientOf(t, "service/udev-usb-camera-viewer", "443")
		requireShadesInPage(t, rtsp.OpenPage(t, viewer.address, viewer.token, nil), names...)
	}))

	run("With Helm values", "deploy/samples/values/udev-usb-camera.yaml", values)
	require.Contains(t, shell(t, "helm get manifest usb --namespace default"), "kind: Configuration\nmetadata:\n  name: udev-usb-camera\n")
	names = nil
	brokers = awaitBrokers(t, "default", "udev-usb-camera", len(akri.Cluster.Nodes()))
	for _, pod := range brokers {
		names = append(names, pod.Name)
	}
	requireShades(t, &brokers[0], "udev-usb-camera-svc", names...)
	requireImageSize(t, "camera-broker")

	// The Pods must end before the camera is unplugged.
	run("Remove it")
	awaitBrokers(t, "default", "udev-usb-camera", 0)
}

// The images of the emulated USB camera have one color each, with a different part of green.
const (
	cameraSize   = 32
	cameraShades = 4
	shadeStep    = 50
)

// shadeOf returns the number of the image of the emulated USB camera.
func shadeOf(t *testing.T, picture image.Image) int {
	t.Helper()
	require.Equal(t, image.Rect(0, 0, cameraSize, cameraSize), picture.Bounds())
	return shadeOfColor(t, picture.At(cameraSize/2, cameraSize/2))
}

// shadeOfColor returns the number of the image that has the color.
func shadeOfColor(t *testing.T, c color.Color) int {
	t.Helper()
	r, g, b, _ := c.RGBA()
	shade := (int(g>>8) + shadeStep/2) / shadeStep
	want := []float64{200, float64(shade * shadeStep), 0}
	require.InDeltaSlice(t, want, []float64{float64(r >> 8), float64(g >> 8), float64(b >> 8)}, 4)
	return shade
}

// requireShades calls GetFrame of a Service from the network of a Pod. The Service has all images
// of the cameras with these names, and of no other.
func requireShades(t *testing.T, from *corev1.Pod, service string, names ...string) {
	t.Helper()
	seen := shades{}
	await(t, "frames from "+service, func(ctx context.Context) error {
		reply, err := frameOf(ctx, t, from, service)
		if err != nil {
			return err
		}
		picture, err := jpeg.Decode(bytes.NewReader(reply.GetFrame()))
		if err != nil {
			return err
		}
		name := reply.GetCamera()
		require.Contains(t, names, name)
		seen.add(name, shadeOf(t, picture))
		return seen.complete(names)
	})
}

// requireShadesInPage requires that the page shows all images of the cameras with these names.
func requireShadesInPage(t *testing.T, page *rtsp.Page, names ...string) {
	t.Helper()
	seen := shades{}
	await(t, "the images of all cameras in the page", func(context.Context) error {
		for _, name := range names {
			c, shown := page.Color(t, name)
			if !shown {
				return fmt.Errorf("the page shows no picture of %s", name)
			}
			seen.add(name, shadeOfColor(t, c))
		}
		return seen.complete(names)
	})
}

// shades are the numbers of the images that were seen, by the name of the camera.
type shades map[string]map[int]bool

func (s shades) add(name string, shade int) {
	if s[name] == nil {
		s[name] = map[int]bool{}
	}
	s[name][shade] = true
}

// complete returns an error unless all images of the cameras were seen.
func (s shades) complete(names []string) error {
	for _, name := range names {
		if len(s[name]) < cameraShades {
			return fmt.Errorf("the images %v", s)
		}
	}
	return nil
}

// requireImageSize compares the size of the image of a sample with that in its README, which is for
// x86-64.
func requireImageSize(t *testing.T, name string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return
	}
	text, err := os.ReadFile(akri.Path("deploy", "samples", name, "README.md"))
	require.NoError(t, err)
	stated := regexp.MustCompile(`The image has ([0-9.]+) MiB`).FindSubmatch(text)
	require.NotNil(t, stated, "the README of %s does not state the size of the image", name)
	want, err := strconv.ParseFloat(string(stated[1]), 64)
	require.NoError(t, err)

	images, err := mesh.ImageFiles(os.Getenv("AKRI_IMAGES"))
	require.NoError(t, err)
	i := slices.IndexFunc(images, func(path string) bool { return filepath.Base(path) == name+".tar" })
	require.GreaterOrEqual(t, i, 0, images)
	info, err := os.Stat(images[i])
	require.NoError(t, err)
	require.InEpsilon(t, want, float64(info.Size())/(1<<20), 0.05, "MiB of the image %s", name)
}

// mjpg returns an image of one color as cameras send it, without Huffman tables.
func mjpg(t *testing.T, size int, c color.Color) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, size, size))
	draw.Draw(picture, picture.Bounds(), image.NewUniform(c), image.Point{}, draw.Src)
	var encoded bytes.Buffer
	require.NoError(t, jpeg.Encode(&encoded, picture, nil))
	before, tables, found := bytes.Cut(encoded.Bytes(), []byte{0xFF, 0xC4})
	require.True(t, found)
	length := int(tables[0])<<8 | int(tables[1])
	return append(bytes.Clone(before), tables[length:]...)
}

// serveCamera installs the seccomp profile of the camera on all nodes and emulates the camera.
func serveCamera(t *testing.T, device *camera.Camera) {
	t.Helper()
	const path = "/run/akri-camera.sock"
	for _, node := range akri.Cluster.Nodes() {
		profiles := filepath.Join(node.KubeletDir(), "seccomp")
		require.NoError(t, os.MkdirAll(profiles, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(profiles, "camera.json"), []byte(camera.Profile(path)), 0o644))
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: node.Path(path), Net: "unix"})
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- device.Serve(listener) }()
		t.Cleanup(func() {
			listener.Close()
			require.NoError(t, <-served)
		})
	}
}

// share makes a group own a device node until the end of the test, as udev does.
func share(t *testing.T, node string, group int) {
	t.Helper()
	restore, err := devices.Share(node, group)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, restore()) })
}

// snapshot returns the latest image of a camera.
func snapshot(t *testing.T, client *cameraClient) image.Image {
	t.Helper()
	body, _ := client.get(t, "/snapshot.jpg")
	defer body.Close()
	picture, err := jpeg.Decode(body)
	require.NoError(t, err)
	return picture
}

// requireFrames reads frames of the video stream.
func requireFrames(t *testing.T, client *cameraClient, count int) {
	t.Helper()
	stream, _ := client.get(t, "/stream")
	defer stream.Close()
	var received bytes.Buffer
	for bytes.Count(received.Bytes(), []byte("Content-Type: image/jpeg")) < count {
		part := make([]byte, 4096)
		n, err := stream.Read(part)
		require.NoError(t, err)
		received.Write(part[:n])
	}
}

// serialSample runs the tutorial with a virtual terminal instead of a serial adapter. The rule is
// tested in handler-udev. A broker that is not a member of the group of the device cannot open it.
func serialSample(t *testing.T) {
	reserve(t, "terminals")
	line, err := devices.OpenVT()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, line.Close()) })
	share(t, line.Node(), dialoutGroup)
	rule := []string{
		`SUBSYSTEM=="tty", SUBSYSTEMS=="usb", KERNEL=="ttyUSB[0-9]*|ttyACM[0-9]*"`, fmt.Sprintf(`SUBSYSTEM=="tty", KERNEL==%q`, line.Name()),
	}
	run := tutorialOf(t, "tutorials/serial-adapter.md", "udev-usb-serial.yaml", sample(t, "udev-usb-serial.yaml", rule...))
	run("Discover it")
	apply(t, sample(t, "udev-usb-serial.yaml", append(rule, "name: udev-usb-serial", "name: e2e-no-group", "[20]", "[]")...))
	run("Use it")
	nodes := len(akri.Cluster.Nodes())
	brokers := awaitBrokers(t, "default", "udev-usb-serial", nodes)
	for _, pod := range brokers {
		query(t, &pod) // the broker responds after it has read the line for its log
	}
	for _, pod := range brokers {
		require.NoError(t, line.Send("21.5 C"))
		device := query(t, &pod).Devices[0]
		require.Equal(t, line.Node(), device.Path)
		require.Empty(t, device.Error)
		require.Equal(t, "21.5 C.", device.Content)
	}
	for _, pod := range awaitBrokers(t, "default", "e2e-no-group", nodes) {
		require.Equal(t, "open "+line.Node()+": permission denied", query(t, &pod).Devices[0].Error)
	}
	run("Remove it")
}

// opcuaSample runs the tutorial. The brokers open sessions with the server and serve a variable of
// it. Clients of upstream Akri get it by the Services of the Configuration and of the device, and
// each new value that the server sets.
func opcuaSample(t *testing.T) {
	const port = 4850
	url := fmt.Sprintf("opc.tcp://%s:%d/", cluster.NeighbourIP, port)
	server := serveOPCUA(t, opcua.Config{
		Port: port, URI: "urn:plant", Name: "Plant", Hostname: cluster.NeighbourIP,
		Nodes: map[string]opcua.Node{"Thermometer_Temperature": {Type: "UInt32", Value: 71}},
	})[0]
	run := tutorialOf(t, "tutorials/opcua.md", "opcua.yaml", sample(t, "opcua.yaml"))
	require.Contains(t, run("Watch a server", "URL=opc.tcp://192.0.2.10:4840/", "URL="+url), "urn:plant")
	values := run("Use it")
	require.Contains(t, values, `"value":71`)
	require.Contains(t, values, `akri_opcua_value{node="Thermometer_Temperature"} 71`)
	from := awaitBrokers(t, "default", "opcua", 2)[0]
	for _, value := range []int32{71, 72, 70} {
		require.NoError(t, opcua.Set(server, "Thermometer_Temperature", value, ""))
		for _, service := range []string{"opcua-svc", from.Labels[mesh.InstanceLabel] + "-svc"} {
			awaitTemperature(t, &from, service, value)
		}
	}
	run("Remove it")
}

// awaitTemperature waits until a Service has the value, as clients of upstream Akri get it.
func awaitTemperature(t *testing.T, from *corev1.Pod, service string, value int32) {
	t.Helper()
	await(t, fmt.Sprintf("the value %d from %s", value, service), func(ctx context.Context) error {
		conn, err := connectFrom(ctx, from, service, "80", insecure.NewCredentials())
		if err != nil {
			return err
		}
		defer conn.Close()
		response, err := opcuanode.NewOpcuaNodeClient(conn).GetValue(ctx, &opcuanode.ValueRequest{})
		if err == nil && response.GetValue() != value {
			err = fmt.Errorf("the value is %d", response.GetValue())
		}
		return err
	})
}
