package inventory

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// What one handler may send: more is a mistake, or an attack on the memory of the mesh.
const (
	MaxDevices      = 10_000
	maxIDBytes      = 1 << 10
	maxProperties   = 64
	maxPropertySize = 4 << 10
	maxPaths        = 64
	// maxProblems of one list; a status must stay readable.
	maxProblems = 10
)

// validEnvName is what Kubernetes takes as the name of an environment variable.
var validEnvName = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)

// Check splits the list of the handler at an endpoint into the devices that can be offered, each id once, sorted by id,
// and what is wrong with the others.
func Check(allow Allow, handler, endpoint string, list []*discoveryv0.Device) ([]*discoveryv0.Device, []*instancev1.Problem) {
	var problems []string
	good := make([]*discoveryv0.Device, 0, len(list))
	for _, device := range list {
		if err := checkDevice(allow, device); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		good = append(good, device)
	}
	slices.SortStableFunc(good, func(a, b *discoveryv0.Device) int { return strings.Compare(a.GetId(), b.GetId()) })
	good = slices.CompactFunc(good, func(a, b *discoveryv0.Device) bool { return a.GetId() == b.GetId() })
	if len(good) > MaxDevices {
		problems = append(problems, fmt.Sprintf("%d devices, at most %d are taken, the first by id", len(good), MaxDevices))
		good = good[:MaxDevices]
	}
	return good, asProblems(handler, endpoint, problems)
}

func asProblems(handler, endpoint string, texts []string) []*instancev1.Problem {
	slices.Sort(texts) // the order of devices means nothing and must not look like news
	if extra := len(texts) - maxProblems; extra > 0 {
		texts = append(texts[:maxProblems], fmt.Sprintf("and %d more", extra))
	}
	var problems []*instancev1.Problem
	for _, text := range texts {
		problems = append(problems, &instancev1.Problem{
			Reason:  akriv0.ReasonInvalidDevice,
			Message: fmt.Sprintf("Discovery Handler %q at %s sent %s", handler, endpoint, text),
		})
	}
	return problems
}

func checkDevice(allow Allow, device *discoveryv0.Device) error {
	id := device.GetId()
	switch {
	case id == "":
		return fmt.Errorf("a device with an empty id: every device needs an id that stays the same")
	case len(id) > maxIDBytes:
		return fmt.Errorf("the device id %.40q... of %d bytes: at most %d are allowed", id, len(id), maxIDBytes)
	case strings.ContainsRune(id, 0):
		return fmt.Errorf("the device id %.100q: it must not contain NUL", id)
	}
	if err := checkProperties(allow, device.GetProperties()); err != nil {
		return fmt.Errorf("device %.100q with %w", id, err)
	}
	if err := checkPaths(allow, device); err != nil {
		return fmt.Errorf("device %.100q with %w", id, err)
	}
	return nil
}

func checkProperties(allow Allow, properties map[string]string) error {
	if len(properties) > maxProperties {
		return fmt.Errorf("%d properties: at most %d are allowed", len(properties), maxProperties)
	}
	for name, value := range properties {
		switch {
		case !validEnvName.MatchString(name):
			return fmt.Errorf("property %.100q: want the name of an environment variable, of letters, digits, '_', '-' and '.', the first not a digit", name)
		case len(name)+len(value) > maxPropertySize:
			return fmt.Errorf("property %.100q of %d bytes: at most %d are allowed", name, len(name)+len(value), maxPropertySize)
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("property %q: its value must not contain NUL", name)
		}
		if err := allow.property(name); err != nil {
			return err
		}
	}
	return nil
}

func checkPaths(allow Allow, device *discoveryv0.Device) error {
	if n := len(device.GetMounts()) + len(device.GetDeviceSpecs()); n > maxPaths {
		return fmt.Errorf("%d mounts and device nodes: at most %d are allowed", n, maxPaths)
	}
	for _, mount := range device.GetMounts() {
		if err := checkPathPair(allow, "mount", mount.GetContainerPath(), mount.GetHostPath()); err != nil {
			return err
		}
	}
	for _, spec := range device.GetDeviceSpecs() {
		if err := checkPathPair(allow, "device node", spec.GetContainerPath(), spec.GetHostPath()); err != nil {
			return err
		}
		if strings.Trim(spec.GetPermissions(), "rwm") != "" {
			return fmt.Errorf("device node %q with permissions %.20q: want letters of rwm", spec.GetContainerPath(), spec.GetPermissions())
		}
	}
	return nil
}

// checkPathPair allows an empty host path: it is then that of the container.
func checkPathPair(allow Allow, what, container, host string) error {
	if validPath(container) && (host == "" || validPath(host)) {
		return allow.hostPath(what, cmp.Or(host, container))
	}
	return fmt.Errorf("%s %.100q on host path %.100q: want absolute paths", what, container, host)
}

func validPath(p string) bool {
	return path.IsAbs(p) && len(p) <= maxPropertySize && !strings.ContainsRune(p, 0)
}
