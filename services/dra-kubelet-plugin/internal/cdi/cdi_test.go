package cdi_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	"akri.sh/libs/node"
	"akri.sh/services/dra-kubelet-plugin/internal/cdi"
	"akri.sh/services/dra-kubelet-plugin/internal/metadata"
)

var update = flag.Bool("update", false, "write the golden files")

var claim = cdi.Claim{
	UID:   "1b4e28ba-2fa1",
	Slots: []node.SlotClaim{{Namespace: "default", Configuration: "cameras", Instance: "cameras-8120fe", Index: 2, ClaimUID: "1b4e28ba-2fa1"}},
	Containers: map[string]*pluginapi.ContainerAllocateResponse{
		"camera": {
			Envs:    map[string]string{"URL": "rtsp://a", "URL_8120FE": "rtsp://a"},
			Mounts:  []*pluginapi.Mount{{HostPath: "/etc/akri/camera", ContainerPath: "/etc/camera", ReadOnly: true}},
			Devices: []*pluginapi.DeviceSpec{{HostPath: "/srv/video0", ContainerPath: "/dev/cam", Permissions: "rw"}},
		},
		"nothing": {},
	},
	Metadata: map[string]metadata.File{
		"camera":  {Path: "/var/run/camera/metadata.json", Content: []byte("{}")},
		"nothing": {Path: "/var/run/nothing/metadata.json", Content: []byte("{}")},
	},
}

// dev returns a directory with a device node.
func dev(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	path := filepath.Join(directory, "video0")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o660))
	return directory
}

func TestFile(t *testing.T) {
	directory := t.TempDir()
	files, err := cdi.NewFiles(directory, dev(t))
	require.NoError(t, err)
	require.NoError(t, files.Write(claim))
	require.NoError(t, files.Write(claim), "a file is replaced")
	path := filepath.Join(directory, "akri.sh-claim_1b4e28ba-2fa1.json")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content = []byte(strings.ReplaceAll(string(content), directory, "/var/run/cdi"))
	golden := filepath.Join("testdata", "claim.golden.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, content, 0o600))
	}
	expected, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.JSONEq(t, string(expected), string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "properties can contain credentials")

	// The container runtime finds the devices.
	cache, err := cdiapi.NewCache(cdiapi.WithSpecDirs(directory), cdiapi.WithAutoRefresh(false))
	require.NoError(t, err)
	require.Empty(t, cache.GetErrors())
	require.ElementsMatch(t, []string{cdi.DeviceID(claim.UID, "camera"), cdi.DeviceID(claim.UID, "nothing")}, cache.ListDevices())

	// Users of a container can read the metadata, and users of the node cannot.
	spec, err := cdiapi.ReadSpec(path, 0)
	require.NoError(t, err)
	mounts := spec.Devices[0].ContainerEdits.Mounts
	mounted := mounts[len(mounts)-1]
	require.Equal(t, &cdispec.Mount{
		HostPath: filepath.Join(directory, "akri.sh-metadata_1b4e28ba-2fa1", "camera.json"), ContainerPath: "/var/run/camera/metadata.json",
		Options: []string{"rbind", "rprivate", "ro"}, Type: "bind",
	}, mounted)
	for path, mode := range map[string]os.FileMode{mounted.HostPath: 0o644, filepath.Dir(mounted.HostPath): 0o700 | os.ModeDir} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), path)
	}
}

// A container must not get a device node that does not exist: the runtime would give a later one to
// the user of the container. One that is not below /dev belongs to root.
// TestTexts gives each character of Unicode that the API server stores to containers, as a
// container runtime does.
func TestTexts(t *testing.T) {
	directory := t.TempDir()
	files, err := cdi.NewFiles(directory, dev(t))
	require.NoError(t, err)
	want := map[string]string{}
	for first := rune(1); first <= unicode.MaxRune; first += 4096 {
		var text strings.Builder
		for r := first; r < min(first+4096, unicode.MaxRune+1); r++ {
			if utf8.ValidRune(r) {
				text.WriteRune(r)
			}
		}
		want[fmt.Sprintf("FROM_%X", first)] = text.String()
	}
	texts := claim
	texts.Containers = map[string]*pluginapi.ContainerAllocateResponse{"camera": {Envs: want}}
	require.NoError(t, files.Write(texts))

	runtime, err := cdiapi.NewCache(cdiapi.WithSpecDirs(directory))
	require.NoError(t, err)
	container := &oci.Spec{}
	_, err = runtime.InjectDevices(container, cdi.DeviceID(claim.UID, "camera"))
	require.NoError(t, err)
	require.Len(t, container.Process.Env, len(want))
	for _, variable := range container.Process.Env {
		name, text, _ := strings.Cut(variable, "=")
		require.Equal(t, want[name], text, name)
	}
	slots, exists, err := files.Read(claim.UID)
	require.NoError(t, err)
	require.True(t, exists)
	require.Equal(t, claim.Slots, slots)
}

func TestOwnerOfDeviceNode(t *testing.T) {
	directory := t.TempDir()
	devices := dev(t)
	require.NoError(t, os.Mkdir(filepath.Join(devices, "by-id"), 0o700))
	require.NoError(t, os.Symlink("../video0", filepath.Join(devices, "by-id", "camera")))
	require.NoError(t, os.Symlink(directory, filepath.Join(devices, "outside")))
	files, err := cdi.NewFiles(directory, devices)
	require.NoError(t, err)
	for _, c := range []struct{ path, want string }{
		{"/dev/absent", "read device node"}, {"/dev/outside", "leads out of /dev"}, {"/dev/by-id/camera", ""}, {"/dev/../video0", ""}, {"/srv/video0", ""}, {"/dev/video0", ""}, {"/dev//video0", ""},
	} {
		claim := cdi.Claim{UID: "x", Containers: map[string]*pluginapi.ContainerAllocateResponse{"camera": {Devices: []*pluginapi.DeviceSpec{{HostPath: c.path, ContainerPath: "/dev/x"}}}}}
		err := files.Write(claim)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c.path)
			require.NoFileExists(t, filepath.Join(directory, "akri.sh-claim_x.json"))
			continue
		}
		require.NoError(t, err, c.path)
		spec, err := cdiapi.ReadSpec(filepath.Join(directory, "akri.sh-claim_x.json"), 0)
		require.NoError(t, err)
		added := spec.Devices[0].ContainerEdits.DeviceNodes[0]
		uid, gid, mode := uint32(0), uint32(0), (*os.FileMode)(nil)
		if added.HostPath == "/dev/video0" {
			uid, gid, mode = uint32(os.Getuid()), uint32(os.Getgid()), new(os.FileMode(0o660))
		}
		require.Equal(t, []any{&uid, &gid, mode}, []any{added.UID, added.GID, added.FileMode}, c.path)
		require.Equal(t, slices.Contains([]string{"/dev/by-id/camera", "/dev/video0", "/dev//video0"}, c.path), mode != nil, c.path)
	}
}

// Only complete files of this driver are known to be its own. Another instance of the service may
// write a new one.
func TestTemporaryFiles(t *testing.T) {
	directory := t.TempDir()
	files := map[string]string{
		"spec.1.tmp": `{"kind":"akri.sh/claim"}`, "spec.2.tmp": `{"kind":"gpu.example.com/claim"}`, "spec.3.tmp": "",
		"spec.4.tmp":           `{"kind":"akri.sh/claim"}`,
		"akri.sh-claim_1.json": `{"kind":"akri.sh/claim"}`, "gpu.example.com-claim_1.json": `{"kind":"gpu.example.com/claim"}`,
	}
	for name, content := range files {
		path := filepath.Join(directory, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		if name != "spec.4.tmp" {
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
		}
	}
	_, err := cdi.NewFiles(directory, dev(t))
	require.NoError(t, err)
	for name := range files {
		_, err := os.Stat(filepath.Join(directory, name))
		require.Equal(t, name == "spec.1.tmp", errors.Is(err, os.ErrNotExist), name)
	}
}

func TestSlots(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "absent")
	files, err := cdi.NewFiles(directory, dev(t))
	require.NoError(t, err)
	slots, err := files.Slots()
	require.NoError(t, err)
	require.Empty(t, slots)

	require.NoError(t, files.Write(claim))
	for name, content := range map[string]string{
		"gpu.example.com-claim_1.json": "{}", "akri.sh-claim.json": "{}", "akri.sh-claim_x.json.tmp": "", "akri.sh-claim_damaged.json": "{",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600))
	}
	slots, err = files.Slots()
	require.ErrorContains(t, err, "akri.sh-claim_damaged.json")
	require.Equal(t, map[string][]node.SlotClaim{claim.UID: claim.Slots, "damaged": nil}, slots)

	require.NoError(t, files.Remove(claim.UID))
	require.NoError(t, files.Remove(claim.UID), "a repeated call succeeds")
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, entries, 4, "those of others")
}
