package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// upstreamAkri is an installation of upstream Akri 0.13 with its stand-ins or its binaries.
type upstreamAkri struct {
	// dir is the directory in which the user runs commands.
	dir string
}

// upstreamValues are the values of the user of upstream Akri, who has a handler debugEcho.
const upstreamValues = `
udev: {discovery: {enabled: true}}
debugEcho:
  discovery: {enabled: false}
`

// upstreamConfiguration are the values of a Configuration that is part of the release.
const upstreamConfiguration = `
  configuration:
    enabled: true
    name: ` + moveRelease + `
    capacity: 2
    discoveryDetails: {descriptions: [foo0]}
    brokerPod: {image: {repository: ghcr.io/akri-mesh/sample-broker, tag: dev, pullPolicy: IfNotPresent}}
`

// moveOverrides are the values that the user adds for this project: its images are not released.
const moveOverrides = "\nglobal: {image: {tag: " + mesh.DevTag + "}}\n"

// ownHandler is a handler of the user, with the library of upstream Akri.
const ownHandler = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: own-handler, namespace: default}
spec:
  selector: {matchLabels: {app: own-handler}}
  template:
    metadata: {labels: {app: own-handler}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: handler
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        command: [/upstream/debug-echo-discovery-handler]
        env:
        - {name: DISCOVERY_HANDLERS_DIRECTORY, value: /var/lib/akri}
        - {name: DEBUG_ECHO_INSTANCES_SHARED, value: "true"}
        - {name: RUST_LOG, value: info}
        volumeMounts:
        - {name: upstream, mountPath: /upstream, readOnly: true}
        - {name: usr, mountPath: /usr, readOnly: true}
        - {name: lib, mountPath: /lib, readOnly: true}
        - {name: lib64, mountPath: /lib64, readOnly: true}
        - {name: sockets, mountPath: /var/lib/akri}
        - {name: tmp, mountPath: /tmp}
      volumes:
      - {name: upstream, hostPath: {path: /var/lib/akri-upstream}}
      - {name: usr, hostPath: {path: /usr}}
      - {name: lib, hostPath: {path: /lib}}
      - {name: lib64, hostPath: {path: /lib64}}
      - {name: sockets, hostPath: {path: /var/lib/akri, type: DirectoryOrCreate}}
      - {name: tmp, emptyDir: {}}
`

// upstreamBinaries are the processes of upstream Akri, named as its build names them.
var upstreamBinaries = []string{"agent", "controller", "debug-echo-discovery-handler", "udev-discovery-handler"}

// installUpstream installs upstream Akri with the values, its CRDs, and a handler of the user.
func installUpstream(t *testing.T, values string) upstreamAkri {
	t.Helper()
	removeAkri(t.Context(), t)
	t.Cleanup(func() { removeAkri(context.WithoutCancel(t.Context()), t) })
	copyUpstream(t)
	u := upstreamAkri{dir: t.TempDir()}
	require.NoError(t, os.Symlink(akri.Path("charts"), filepath.Join(u.dir, "charts")))
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	_, err := akri.Helm(t.Context(), "install", "akri", akri.Path("integration/adoption/upstream/chart"), "--namespace", "default",
		"--values", file, "--wait", "--timeout", "2m")
	require.NoError(t, err)
	apply(t, ownHandler)
	return u
}

// removeAkri removes upstream Akri and this project with all their objects.
func removeAkri(ctx context.Context, t *testing.T) {
	t.Helper()
	_, err := akri.Uninstall(ctx)
	require.NoError(t, err)
	_, err = akri.Helm(ctx, "uninstall", "akri", "--namespace", "default", "--no-hooks", "--ignore-not-found")
	require.NoError(t, err)
	_, err = akri.Helm(ctx, "uninstall", "akri-crds", "--namespace", "default", "--ignore-not-found")
	require.NoError(t, err)
	for _, kind := range []string{"configurations", "instances"} {
		names, err := akri.Kubectl(ctx, "", "get", kind+".akri.sh", "--namespace", "default", "-o", "name", "--ignore-not-found")
		if err != nil {
			continue // the CRD does not exist
		}
		for name := range strings.FieldsSeq(names) {
			_, err := akri.Kubectl(ctx, "", "patch", name, "--namespace", "default", "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
			require.NoError(t, err)
		}
	}
	_, err = akri.Kubectl(ctx, "", "delete", "crd", "configurations.akri.sh", "instances.akri.sh", "--ignore-not-found")
	require.NoError(t, err)
	// The record of the names of Configurations would stay.
	_, err = akri.Kubectl(ctx, "", "delete", "--ignore-not-found", "namespace/"+mesh.Namespace)
	require.NoError(t, err)
	_, err = akri.Kubectl(ctx, "", "delete", "--ignore-not-found", "--namespace", "default", "configmap/akri-names")
	require.NoError(t, err)
}

// copyUpstream copies the binaries, and kubectl for a hook of upstream's chart, to each node.
func copyUpstream(t *testing.T) {
	t.Helper()
	dir := os.Getenv("AKRI_E2E_UPSTREAM")
	if dir == "" {
		dir = t.TempDir()
		for _, name := range upstreamBinaries {
			build := exec.Command("go", "build", "-o", dir, "./adoption/upstream/cmd/"+name)
			build.Dir, build.Env = akri.Path("integration"), append(os.Environ(), "CGO_ENABLED=0")
			output, err := build.CombinedOutput()
			require.NoError(t, err, "%s", output)
		}
	}
	files := []string{filepath.Join(akri.Bin(), "kubectl")}
	for _, name := range upstreamBinaries {
		files = append(files, filepath.Join(dir, name))
	}
	for _, node := range akri.Cluster.Nodes() {
		into := node.Path("/var/lib/akri-upstream")
		require.NoError(t, os.MkdirAll(into, 0o755))
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			copied := filepath.Join(into, filepath.Base(file))
			require.NoError(t, os.RemoveAll(copied)) // a process may run the former file
			require.NoError(t, os.WriteFile(copied, content, 0o755))
		}
	}
}

// move runs the commands of the page. Replacements are pairs of a text and its replacement, which
// the page describes. It returns the time when the first command began that changes something.
func (u upstreamAkri) move(t *testing.T, replacements ...string) (start time.Time) {
	t.Helper()
	for _, command := range u.commands(t, "## Before") {
		t.Log(u.shell(t, command))
		u.override(t)
	}
	start = time.Now()
	for _, command := range u.commands(t, "## Move") {
		for pair := range slices.Chunk(replacements, 2) {
			command = strings.ReplaceAll(command, pair[0], pair[1])
		}
		t.Log(u.shell(t, command))
	}
	return start
}

// override adds values to the file that the user has saved, once.
func (u upstreamAkri) override(t *testing.T) {
	t.Helper()
	file := filepath.Join(u.dir, "akri-values.yaml")
	saved, err := os.ReadFile(file)
	require.NoError(t, err)
	if !strings.Contains(string(saved), moveOverrides) {
		require.NoError(t, os.WriteFile(file, append(saved, moveOverrides...), 0o600))
	}
}

var shellBlock = regexp.MustCompile("(?ms)^( *)```sh\n(.*?)^ *```$")

// commands returns the blocks of commands below a heading of the page about the move.
func (upstreamAkri) commands(t *testing.T, heading string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(akri.Path("docs/how-to/move-from-akri.md"))
	require.NoError(t, err)
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, heading)
	below, _, _ = strings.Cut(below, "\n## ")
	for _, block := range shellBlock.FindAllStringSubmatch(below, -1) {
		blocks = append(blocks, strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n"))
	}
	require.NotEmpty(t, blocks, heading)
	return blocks
}

// shell runs commands as the user does, and returns their output.
func (u upstreamAkri) shell(t *testing.T, commands string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", commands)
	command.Dir = u.dir
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(),
		"PATH="+strings.Join([]string{akri.Bin(), akri.Path("bin"), os.Getenv("PATH")}, ":"))
	output, err := command.CombinedOutput()
	if err != nil {
		logState(t)
	}
	require.NoError(t, err, "%s", output)
	return string(output)
}

// awaitAdopted waits until the nodes (by default all) report the devices of all Configurations, and
// nothing of upstream's agents is left on these.
func (u upstreamAkri) awaitAdopted(t *testing.T, nodes ...string) {
	t.Helper()
	if len(nodes) == 0 {
		nodes = clusterNodes()
	}
	all := akri.Configurations.In("default")
	awaitObjects(t, "reports of the nodes", all, metav1.ListOptions{}, func(found []akriv0.Configuration) error {
		for _, configuration := range found {
			if err := adopted(&configuration, nodes); err != nil {
				return err
			}
		}
		return nil
	})
	awaitObjects(t, "ids of the devices", akri.Instances.In("default"), metav1.ListOptions{}, func(found []akriv0.Instance) error {
		for _, instance := range found {
			seen := slices.ContainsFunc(instance.Spec.Nodes, func(node string) bool { return slices.Contains(nodes, node) })
			if len(instance.Finalizers) > 0 || (seen && instance.Annotations[akriv0.DeviceIDAnnotation] == "") {
				return fmt.Errorf("%s has finalizers %v and annotations %v", instance.Name, instance.Finalizers, instance.Annotations)
			}
		}
		return nil
	})
}

func adopted(configuration *akriv0.Configuration, nodes []string) error {
	if len(configuration.Finalizers) > 0 {
		return fmt.Errorf("%s has finalizers %v", configuration.Name, configuration.Finalizers)
	}
	for _, name := range nodes {
		reports := slices.ContainsFunc(configuration.Status.Nodes, func(node akriv0.NodeStatus) bool {
			return node.Name == name && node.NotReportingSince == nil && node.Devices > 0 && len(node.Handlers) > 0 && len(node.Problems) == 0
		})
		if !reports {
			return fmt.Errorf("%s does not report devices of %s: %+v", name, configuration.Name, configuration.Status)
		}
	}
	return nil
}
