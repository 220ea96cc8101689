package vm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
	"akri.sh/integration/vm"
)

const (
	siteDir = "/tmp/akri-vm"
	// guestNode is the name of the node that is a guest.
	guestNode  = "guest"
	agentLabel = "app.kubernetes.io/component=agent"
	// siteTimeout is how long a test waits for a node or a broker. A node that boots is ready after
	// one to two minutes, and on a machine that does other work the containers of an ARM processor
	// need minutes.
	siteTimeout = 10 * time.Minute
)

// configurationFormat is a Configuration of udev with a broker for each device: a name, rules, and
// the PodSpec of brokers.
const configurationFormat = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: %s, namespace: default}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules:
      - %s
  brokerSpec:
    brokerPodSpec:
      terminationGracePeriodSeconds: 1
%s`

func configuration(name string, rules []string, pod string) string {
	return fmt.Sprintf(configurationFormat, name, strings.Join(rules, "\n      - "), pod)
}

// diskRules select the disks that the tests plug in, but not those of the node. Their serial number
// is a property of udev.
var diskRules = []string{
	`SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ENV{ID_SERIAL_SHORT}=="SITE*"`,
	`SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ENV{ID_SERIAL}=="SITE*"`,
}

// diskBroker serves what it reads from its device.
const diskBroker = `
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: Never
        ports: [{containerPort: 8083}]
        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 1}
        resources:
          requests: {"{{PLACEHOLDER}}": "1"}
          limits: {"{{PLACEHOLDER}}": "1"}
`

// shellBroker has the programs of its node, for scripts that read its device. Its parameters are
// whether it has the host network, and capabilities.
const shellBroker = `
      hostNetwork: %t
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: Never
        command: [/bin/sleep, infinity]
        securityContext: {capabilities: {add: %s}}
        resources:
          requests: {"{{PLACEHOLDER}}": "1"}
          limits: {"{{PLACEHOLDER}}": "1"}
        volumeMounts:
        - {name: usr, mountPath: /usr, readOnly: true}
        - {name: bin, mountPath: /bin, readOnly: true}
        - {name: lib, mountPath: /lib, readOnly: true}
        - {name: lib64, mountPath: /lib64, readOnly: true}
      volumes:
      - {name: usr, hostPath: {path: /usr}}
      - {name: bin, hostPath: {path: /usr/bin}}
      - {name: lib, hostPath: {path: /usr/lib}}
      - {name: lib64, hostPath: {path: /usr/lib64}}
`

var cameraConfiguration = configuration("cameras", []string{cameraRule}, cameraBroker)

// cameraBroker runs the camera broker as a user who may read the device node as a member of the
// group video. It is ready when the camera has sent a frame.
const cameraBroker = `
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/camera-broker:dev
        imagePullPolicy: Never
        env:
        - {name: ALLOW_PLAIN_TEXT, value: "true"}
        - {name: FORMAT, value: YUYV}
        - {name: RESOLUTION_WIDTH, value: "320"}
        - {name: RESOLUTION_HEIGHT, value: "180"}
        - {name: FRAMES_PER_SECOND, value: "2"}
        ports: [{containerPort: 8083}]
        readinessProbe: {httpGet: {path: /healthz, port: 8083}, periodSeconds: 2, timeoutSeconds: 5}
        resources:
          requests: {"{{PLACEHOLDER}}": "1"}
          limits: {"{{PLACEHOLDER}}": "1"}
        securityContext: {runAsNonRoot: true, runAsUser: 65532, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      securityContext:
        supplementalGroups: [44]
`

// site is a cluster with two nodes: one in namespaces of this machine, which runs the cluster
// services of Akri, and a guest.
type site struct {
	siteConfig
	image *vm.Image
	akri  *mesh.Mesh
	node  *vm.Node
}

// siteConfig is how the guest of a site differs from that of a default one.
type siteConfig struct {
	machine vm.Machine
	// description is that of the guest in the results.
	description string
	// kubeletDir is the kubelet's directory. Default: that of the kubelet.
	kubeletDir string
	// archive returns the archive of an image for the guest. Default: the one for the processor of
	// this machine.
	archive func(image string) string
}

// newSite returns a site without the guest and without Akri until the test ends.
func newSite(t *testing.T, config siteConfig) *site {
	t.Helper()
	built := image(t, config.machine)
	images, err := mesh.ImageFiles(os.Getenv("AKRI_IMAGES"))
	require.NoError(t, err)
	require.NoError(t, cluster.Down(t.Context(), siteDir)) // of a killed test, whose guest has ended
	running, err := cluster.Up(t.Context(), cluster.Config{
		Dir: siteDir, Nodes: []string{"node-a"}, Images: images, Progress: func(step string) { fmt.Fprintln(os.Stderr, step) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Down(context.WithoutCancel(t.Context()))) })

	if config.archive == nil {
		config.archive = func(image string) string { return filepath.Join(filepath.Dir(images[0]), image+".tar") }
	}
	s := &site{siteConfig: config, image: built}
	s.akri, err = mesh.New(t.Context(), running)
	require.NoError(t, err)
	return s
}

// startGuest starts the guest until the test ends, and waits until it is a node.
func (s *site) startGuest(t *testing.T) {
	t.Helper()
	options := cluster.MemberOptions{Name: guestNode, Architecture: s.machine.Architecture, KubeletDir: s.kubeletDir}
	for _, name := range []string{"agent", "sample-broker", "camera-broker"} {
		options.Images = append(options.Images, s.archive(name))
	}
	member, err := s.akri.Cluster.Join(t.Context(), options)
	require.NoError(t, err)
	s.node, err = s.image.StartNode(t.Context(), s.akri.Cluster, member)
	require.NoError(t, err)
	t.Cleanup(func() { s.close(t) })
	results.ranOn(run(t, s.node.Guest, system))

	fmt.Fprintln(os.Stderr, "waiting for the guest to join the cluster")
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	require.NoError(t, member.AwaitReady(ctx))
	_, err = s.node.Run(ctx, "touch /usr/file")
	require.ErrorContains(t, err, "Read-only file system")
}

// install installs Akri with the values of the chart. The cluster services run on the other node:
// the guest does not have their images.
func (s *site) install(t *testing.T, values ...string) {
	t.Helper()
	fmt.Fprintln(os.Stderr, "installing Akri")
	if s.node != nil {
		s.kubectl(t, "cordon", guestNode)
		defer s.kubectl(t, "uncordon", guestNode)
	}
	require.NoError(t, s.akri.Install(t.Context(), append(values, "global.agent.enabled=true")...))
}

// awaitAgent waits for the agent on the guest.
func (s *site) awaitAgent(t *testing.T) {
	t.Helper()
	fmt.Fprintln(os.Stderr, "waiting for Akri on the guest")
	options := metav1.ListOptions{LabelSelector: agentLabel, FieldSelector: "spec.nodeName=" + guestNode}
	awaitObjects(t, "agent on the guest", s.akri.Kubernetes.CoreV1().Pods(mesh.Namespace), options, func(found []corev1.Pod) error {
		if len(found) != 1 || !mesh.Ready(&found[0]) {
			return fmt.Errorf("%d agents: %v", len(found), describe(found))
		}
		return nil
	})
}

// offerDisks creates the Configuration of disks that the rules select.
func (s *site) offerDisks(t *testing.T, rules ...string) {
	t.Helper()
	require.NoError(t, s.akri.ApplyText(t.Context(), configuration("disks", rules, diskBroker)))
}

func (s *site) kubectl(t *testing.T, arguments ...string) {
	t.Helper()
	_, err := s.akri.Kubectl(t.Context(), "", arguments...)
	require.NoError(t, err)
}

// close ends the guest. A failed test logs what its services logged.
func (s *site) close(t *testing.T) {
	t.Helper()
	if t.Failed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		logs, err := s.node.Logs(ctx)
		t.Logf("logs of the guest (%v):\n%s\nconsole:\n%s", err, logs, s.node.Console())
	}
	require.NoError(t, s.node.Close())
}

// awaitDisk waits until there is exactly one Instance, of the disk on the guest, and one broker,
// which reads its content.
func (s *site) awaitDisk(t *testing.T, content string) akriv0.Instance {
	t.Helper()
	instance, broker := s.awaitBroker(t, "disks")
	s.awaitRead(t, &broker, content)
	return instance
}

// awaitRead waits until the broker reads the content of its disk.
func (s *site) awaitRead(t *testing.T, broker *corev1.Pod, content string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	require.NoError(t, mesh.Await(ctx, "content of the disk", func(ctx context.Context) error { return s.read(ctx, broker, content) }))
}

// awaitInstance waits until there is exactly one Instance, of a device on the guest.
func (s *site) awaitInstance(t *testing.T) (instance akriv0.Instance) {
	t.Helper()
	awaitObjects(t, "Instance", s.akri.Instances.In("default"), metav1.ListOptions{}, func(found []akriv0.Instance) error {
		if len(found) != 1 || len(found[0].Spec.Nodes) != 1 || found[0].Spec.Nodes[0] != guestNode {
			return fmt.Errorf("%d Instances: %v", len(found), found)
		}
		instance = found[0]
		return nil
	})
	return instance
}

// awaitBroker waits until there is exactly one Instance, of a device on the guest, and one broker
// of the Configuration, which is ready.
func (s *site) awaitBroker(t *testing.T, configuration string) (instance akriv0.Instance, broker corev1.Pod) {
	t.Helper()
	instance = s.awaitInstance(t)
	brokers := metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + configuration}
	awaitObjects(t, "broker", s.akri.Kubernetes.CoreV1().Pods("default"), brokers, func(found []corev1.Pod) error {
		if len(found) != 1 || !mesh.Ready(&found[0]) {
			return fmt.Errorf("%d brokers: %v", len(found), describe(found))
		}
		broker = found[0]
		return nil
	})
	require.Equal(t, guestNode, broker.Spec.NodeName)
	return instance, broker
}

// inBroker returns the broker as the place where its device is read.
func (s *site) inBroker(broker *corev1.Pod) place {
	return place{s.node.Guest, func(t *testing.T, script string) string {
		t.Helper()
		output, err := s.akri.Kubectl(t.Context(), "", "exec", "--namespace", broker.Namespace, broker.Name, "--", "/bin/sh", "-c", script)
		require.NoError(t, err)
		return strings.TrimSpace(output)
	}}
}

// awaitNothing waits until there are no Instances and no brokers.
func (s *site) awaitNothing(t *testing.T) {
	t.Helper()
	awaitObjects(t, "end of the Instance", s.akri.Instances.In("default"), metav1.ListOptions{}, func(found []akriv0.Instance) error {
		if len(found) > 0 {
			return fmt.Errorf("%d Instances: %v", len(found), found)
		}
		return nil
	})
	brokers := metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel}
	awaitObjects(t, "end of the broker", s.akri.Kubernetes.CoreV1().Pods("default"), brokers, func(found []corev1.Pod) error {
		if len(found) > 0 {
			return fmt.Errorf("%d brokers: %v", len(found), describe(found))
		}
		return nil
	})
}

func describe(pods []corev1.Pod) []string {
	var texts []string
	for _, pod := range pods {
		texts = append(texts, fmt.Sprintf("%s on %q: %s, deleted %v, %v",
			pod.Name, pod.Spec.NodeName, pod.Status.Phase, pod.DeletionTimestamp, pod.Status.ContainerStatuses))
	}
	return texts
}

// read compares what the broker reads from its device with the content. It names the device in
// several variables.
func (s *site) read(ctx context.Context, broker *corev1.Pod, content string) error {
	text, err := s.akri.QueryBroker(ctx, broker)
	if err != nil {
		return err
	}
	var response struct {
		Devices []struct{ Content string }
	}
	if err := json.Unmarshal(text, &response); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	for _, device := range response.Devices {
		if device.Content == "" || !strings.HasPrefix(content, device.Content) {
			return fmt.Errorf("the broker read %s", text)
		}
	}
	if len(response.Devices) == 0 {
		return errors.New("the broker has no device")
	}
	return nil
}

func (s *site) bootID(t *testing.T) (id string) {
	t.Helper()
	s.awaitNode(t, func(node *corev1.Node) error {
		id = node.Status.NodeInfo.BootID
		return nil
	})
	return id
}

// awaitNode waits until check accepts the Node of the guest.
func (s *site) awaitNode(t *testing.T, check func(*corev1.Node) error) {
	t.Helper()
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + guestNode}
	awaitObjects(t, "Node of the guest", s.akri.Kubernetes.CoreV1().Nodes(), options, func(found []corev1.Node) error {
		if len(found) != 1 {
			return fmt.Errorf("%d Nodes", len(found))
		}
		return check(&found[0])
	})
}

func ready(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("the node is not ready")
}

// awaitObjects is mesh.AwaitObjects with the time limit of these tests.
func awaitObjects[T any, L runtime.Object](
	t *testing.T, what string, objects mesh.Objects[L], options metav1.ListOptions, check func([]T) error,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), siteTimeout)
	defer cancel()
	require.NoError(t, mesh.AwaitObjects(ctx, what, objects, options, check))
}
