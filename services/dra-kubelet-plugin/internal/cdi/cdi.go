// Package cdi writes what the containers of a prepared ResourceClaim get, in a file of the
// Container Device Interface (CDI) for each claim. The file also records the slots that are
// reserved for the claim, so that there is nothing else to keep between two runs of the service.
package cdi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cdiapi "tags.cncf.io/container-device-interface/pkg/cdi"
	cdispec "tags.cncf.io/container-device-interface/specs-go"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/node"
	"akri.sh/services/dra-kubelet-plugin/internal/metadata"
)

const (
	class = "claim"
	kind  = akriv0.Group + "/" + class
	// slotsAnnotation of a file has the slots of the claim.
	slotsAnnotation = akriv0.Group + "/slots"
	extension       = ".json"
	// metadataPrefix is that of the directory with the metadata of a claim. The container runtime
	// reads no subdirectories.
	metadataPrefix = akriv0.Group + "-metadata_"
	// writing is longer than a file is written.
	writing = time.Minute
)

// Claim is a ResourceClaim that is prepared, or whose preparation has begun.
type Claim struct {
	UID string
	// Slots are reserved for the claim, or a reservation of them was sent.
	Slots []node.SlotClaim
	// Containers has what the containers with a request of the claim get, by request.
	Containers map[string]*pluginapi.ContainerAllocateResponse
	// Metadata describes the devices to the containers, by request.
	Metadata map[string]metadata.File
}

// Files are the files of claims in a directory that the container runtime reads.
type Files struct {
	directory string
	// dev is where the directory /dev of the node is.
	dev string
}

// NewFiles returns the files in the directory. It removes temporary files that a process left which
// was killed while it wrote. Device nodes are read in dev, which is /dev of the node.
func NewFiles(directory, dev string) (*Files, error) {
	if err := removeTemporary(directory); err != nil {
		return nil, err
	}
	return &Files{directory: directory, dev: dev}, nil
}

// temporary are the names of files that are being written. They are those of cdiapi.Cache, with
// which other drivers write.
const temporary = "spec.*.tmp"

// removeTemporary removes the temporary files with claims of Akri.
func removeTemporary(directory string) error {
	paths, err := filepath.Glob(filepath.Join(directory, temporary))
	if err != nil {
		return fmt.Errorf("list temporary CDI files: %w", err)
	}

	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) < writing {
			continue // the instance of the service that this one replaces may write it
		}

		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another driver has finished its file
		}
		if err != nil {
			return fmt.Errorf("read temporary CDI file: %w", err)
		}

		var spec cdispec.Spec
		if json.Unmarshal(content, &spec) != nil || spec.Kind != kind {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove temporary CDI file: %w", err)
		}
	}
	return nil
}

// DeviceID returns the CDI device of a request.
func DeviceID(uid, request string) string { return kind + "=" + deviceName(uid, request) }

func deviceName(uid, request string) string { return uid + "-" + request }

func fileName(uid string) string {
	return cdiapi.GenerateTransientSpecName(akriv0.Group, class, uid) + extension
}

// Write creates or replaces the files of the claim. It fails if a device node does not exist.
func (f *Files) Write(claim Claim) error {
	record, err := json.Marshal(claim.Slots)
	if err != nil {
		return fmt.Errorf("encode slots: %w", err)
	}
	spec := &cdispec.Spec{Kind: kind, Annotations: map[string]string{slotsAnnotation: string(record)}}
	for _, request := range slices.Sorted(maps.Keys(claim.Containers)) {
		edits, err := f.edits(claim.Containers[request])
		if err != nil {
			return err
		}
		if file, exists := claim.Metadata[request]; exists {
			edits.Mounts = append(edits.Mounts, mount(f.metadataFile(claim.UID, request), file.Path, true))
		}
		spec.Devices = append(spec.Devices, cdispec.Device{Name: deviceName(claim.UID, request), ContainerEdits: edits})
	}

	for request, file := range claim.Metadata {
		if err := f.writeMetadata(claim.UID, request, file.Content); err != nil {
			return err
		}
	}
	if spec.Version, err = cdispec.MinimumRequiredVersion(spec); err != nil {
		return fmt.Errorf("choose version of the CDI file: %w", err)
	}
	if err := f.writeSpec(spec, filepath.Join(f.directory, fileName(claim.UID))); err != nil {
		return fmt.Errorf("write CDI file: %w", err)
	}
	return nil
}

// writeSpec replaces the file at once with one that the container runtime accepts.
func (f *Files) writeSpec(spec *cdispec.Spec, path string) error {
	data, err := encode(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.directory, 0o755); err != nil {
		return err
	}

	file, err := os.CreateTemp(f.directory, temporary)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		_, err = cdiapi.ReadSpec(file.Name(), 0)
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}

	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// encode returns JSON that is also YAML, as which container runtimes read it. YAML has no control
// characters, and reads U+0085 as the end of a line. Values of properties can have both,
// and cdiapi.Cache does not escape them.
func encode(spec *cdispec.Spec) ([]byte, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var escaped bytes.Buffer
	for _, r := range string(data) {
		if r < 0x7f || r > maxEscaped || unicode.IsPrint(r) {
			escaped.WriteRune(r)
		} else {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.Bytes(), nil
}

// maxEscaped is the last character that is escaped. YAML accepts all later ones as they are, but
// not the pairs of surrogates with which JSON escapes them.
const maxEscaped = 0xffff

func (f *Files) metadataDirectory(uid string) string {
	return filepath.Join(f.directory, metadataPrefix+uid)
}

// metadataFile returns the path of the metadata of a request.
func (f *Files) metadataFile(uid, request string) string {
	return filepath.Join(f.metadataDirectory(uid), request+extension)
}

// writeMetadata replaces a file at once, because a container may start meanwhile. Any user of a
// container may read the file, as its environment; on the node only root can reach it.
func (f *Files) writeMetadata(uid, request string, content []byte) error {
	path := f.metadataFile(uid, request)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create directory of metadata: %w", err)
	}
	if err := os.WriteFile(path+".tmp", content, 0o644); err != nil {
		return fmt.Errorf("write metadata: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write metadata: %w", err)
	}
	return nil
}

// Remove removes the files of the claim, if they exist. The record is removed last.
func (f *Files) Remove(uid string) error {
	if err := os.RemoveAll(f.metadataDirectory(uid)); err != nil {
		return fmt.Errorf("remove metadata: %w", err)
	}
	if err := os.Remove(filepath.Join(f.directory, fileName(uid))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove CDI file: %w", err)
	}
	return nil
}

// Slots returns the slots of all claims with a file, by the uid of the claim. A file that cannot be
// read is an error in addition to the others.
func (f *Files) Slots() (map[string][]node.SlotClaim, error) {
	all := map[string][]node.SlotClaim{}
	entries, err := os.ReadDir(f.directory)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list CDI files: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		uid := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), strings.TrimSuffix(fileName(""), extension)), extension)
		if entry.Name() != fileName(uid) {
			continue
		}
		if all[uid], err = f.read(uid); err != nil {
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// Read returns the slots of the claim, and whether it has a file. An unreadable file has no slots.
func (f *Files) Read(uid string) (slots []node.SlotClaim, exists bool, err error) {
	slots, err = f.read(uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return slots, true, err
}

func (f *Files) read(uid string) (slots []node.SlotClaim, err error) {
	spec, err := cdiapi.ReadSpec(filepath.Join(f.directory, fileName(uid)), 0)
	if err != nil {
		return nil, fmt.Errorf("read CDI file: %w", err)
	}
	if err := json.Unmarshal([]byte(spec.Annotations[slotsAnnotation]), &slots); err != nil {
		return nil, fmt.Errorf("decode slots in %s: %w", spec.GetPath(), err)
	}
	return slots, nil
}

// edits returns the form of CDI of what a container gets. CDI refuses a device that changes
// nothing, but each device has metadata.
func (f *Files) edits(container *pluginapi.ContainerAllocateResponse) (edits cdispec.ContainerEdits, err error) {
	for _, name := range slices.Sorted(maps.Keys(container.GetEnvs())) {
		edits.Env = append(edits.Env, name+"="+container.GetEnvs()[name])
	}
	for _, n := range container.GetDevices() {
		added := &cdispec.DeviceNode{Path: n.GetContainerPath(), HostPath: n.GetHostPath(), Permissions: n.GetPermissions()}
		if err := f.completeDeviceNode(added); err != nil {
			return edits, err
		}
		edits.DeviceNodes = append(edits.DeviceNodes, added)
	}
	for _, m := range container.GetMounts() {
		edits.Mounts = append(edits.Mounts, mount(m.GetHostPath(), m.GetContainerPath(), m.GetReadOnly()))
	}
	return edits, nil
}

func mount(host, container string, readOnly bool) *cdispec.Mount {
	options := []string{"rbind", "rprivate", "rw"} // those of mounts of device plugins
	if readOnly {
		options[2] = "ro"
	}
	return &cdispec.Mount{HostPath: host, ContainerPath: container, Options: options, Type: "bind"}
}

// completeDeviceNode does what the runtime does for device plugins, but not for CDI. It sets the
// owner, the group and the mode of the node's device node: the runtime would give the device node
// to the user of the container. It resolves a link, which the runtime would refuse. A device node
// that is not below /dev belongs to root.
func (f *Files) completeDeviceNode(n *cdispec.DeviceNode) error {
	n.UID, n.GID = new(uint32), new(uint32)
	name, found := strings.CutPrefix(filepath.Clean(n.HostPath), "/dev/")
	if !found {
		return nil
	}

	path, err := filepath.EvalSymlinks(filepath.Join(f.dev, name))
	if err != nil {
		return fmt.Errorf("read device node: %w", err)
	}
	resolved, err := filepath.Rel(f.dev, path)
	if err != nil || !filepath.IsLocal(resolved) {
		return fmt.Errorf("read device node: the link %s leads out of /dev", n.HostPath)
	}
	n.HostPath = filepath.Join("/dev", resolved)

	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("read device node: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("read device node: the owner of %s is unknown", n.HostPath)
	}
	n.UID, n.GID, n.FileMode = &stat.Uid, &stat.Gid, new(info.Mode().Perm())
	return nil
}
