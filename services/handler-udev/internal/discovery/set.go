package discovery

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	details "akri.sh/libs/details/udev"
	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
)

// Names of discoveryProperties.
const (
	resourceNameProperty = "devicePluginResourceName"
	vfioProperty         = "vfioPassthrough"
)

// Spec is the validated content of discoveryDetails and discoveryProperties.
type Spec struct {
	details.Details

	resourceSuffix string // of the names of KubeVirt's variables; empty: no such variables
	vfio           bool
}

// ParseSpec reads a request. The error lists all problems, with their position in a rule.
func ParseSpec(request handler.Request) (Spec, error) {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return Spec{}, handler.Invalid(err)
	}
	return Spec{
		Details:        parsed,
		resourceSuffix: variableSuffix(string(request.Properties[resourceNameProperty])),
		// Any value other than "true" is false, as in upstream Akri.
		vfio: strings.EqualFold(strings.TrimSpace(string(request.Properties[vfioProperty])), "true"),
	}, nil
}

// variableSuffix converts a resource name to the end of KubeVirt's variable names.
func variableSuffix(resource string) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(strings.TrimSpace(resource)))
}

// Set holds the devices that a Spec selects. It is updated for one part of the device tree at a
// time, so that the cost of an event does not depend on the number of devices.
type Set struct {
	spec    Spec
	matches map[string]match // by the devpath of the device that a rule matches
	listed  map[string]bool  // ids of the last result of Devices
}

// NewSet returns an empty Set.
func NewSet(spec Spec) *Set { return &Set{spec: spec, matches: map[string]match{}} }

// Refresh replaces the content at and below a devpath with the devices that match. "" is the whole
// tree. It calls waits for a match and for the device that is offered for it: while one of them
// waits, the match is not listed. A match that was complete once stays so as long as the device
// exists.
func (s *Set) Refresh(top string, devices []rules.Device, waits func(rules.Device) bool) {
	previous := s.take(top)
	for _, device := range devices {
		if !s.spec.matches(device) || !device.Exists() {
			continue
		}
		offered := nearestWithDevnode(device)
		found := match{inode: device.Inode(), devpath: offered.Devpath(), devnode: offered.Devnode(), iommuGroup: offered.IOMMUGroup()}
		last, exists := previous[device.Devpath()]
		complete := exists && !last.waiting && last.inode == found.inode
		found.waiting = !complete && (waits(device) || offered != device && waits(offered))
		// udevd may have stored properties since the rules were evaluated.
		if !complete && !found.waiting && !s.spec.matches(device) {
			continue
		}
		found.properties = s.spec.readProperties(device)
		s.matches[device.Devpath()] = found
	}
}

// take removes and returns the matches at and below a devpath.
func (s *Set) take(top string) map[string]match {
	taken := map[string]match{}
	maps.DeleteFunc(s.matches, func(devpath string, m match) bool {
		if !Within(top, devpath) {
			return false
		}
		taken[devpath] = m
		return true
	})
	return taken
}

// Waiting returns the devpaths of the matches that wait.
func (s *Set) Waiting() []string {
	var devpaths []string
	for devpath, m := range s.matches {
		if m.waiting {
			devpaths = append(devpaths, devpath)
		}
	}
	return devpaths
}

// Remove removes the devices at and below a devpath.
func (s *Set) Remove(top string) { s.take(top) }

// Within reports whether a devpath is top or below it. Every devpath is below "". 1-10 is not below
// 1-1.
func Within(top, devpath string) bool {
	rest, ok := strings.CutPrefix(devpath, top)
	return ok && (rest == "" || rest[0] == '/')
}

// Devices returns one device for each devpath. With groupRecursive, it returns one for each topmost
// devpath.
func (s *Set) Devices() []*handler.Device {
	var devices []*handler.Device
	var group []match
	flush := func() {
		if complete := s.complete(group); len(complete) > 0 {
			devices = append(devices, s.spec.describe(complete))
		}
		group = nil
	}
	for _, next := range s.sorted() {
		if len(group) == 0 || !s.sameGroup(group[0].devpath, next.devpath) {
			flush()
		}
		group = append(group, next)
	}
	flush()

	s.listed = make(map[string]bool, len(devices))
	for _, device := range devices {
		s.listed[device.GetId()] = true
	}
	return devices
}

// complete returns the matches of a group that do not wait. It returns none if the first one waits,
// which is the identity of the group, or if the group is new and would grow at once.
func (s *Set) complete(group []match) []match {
	complete := slices.DeleteFunc(slices.Clone(group), func(m match) bool { return m.waiting })
	if len(complete) < len(group) && (group[0].waiting || !s.listed[group[0].devpath]) {
		return nil
	}
	return complete
}

// sameGroup reports whether a devpath belongs to the device that is offered as top.
func (s *Set) sameGroup(top, devpath string) bool {
	return top == devpath || s.spec.GroupRecursive && Within(top, devpath)
}

// sorted returns the matches in the order of the tree. Matches with the same offered devpath are in
// the order of the devices that the rules match.
func (s *Set) sorted() []match {
	list := make([]match, 0, len(s.matches))
	for _, devpath := range slices.SortedFunc(maps.Keys(s.matches), compareInTree) {
		list = append(list, s.matches[devpath])
	}
	slices.SortStableFunc(list, func(a, b match) int { return compareInTree(a.devpath, b.devpath) })
	return list
}

// compareInTree sorts '/' first, so that the descendants of a path directly follow it.
func compareInTree(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

var (
	usbDevnode = regexp.MustCompile(`^/dev/bus/usb/(\d{3})/(\d{3})$`)
	pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
)

// match is a device that a rule matches, and what is sent of it.
type match struct {
	// inode is that of the device itself.
	inode uint64
	// waiting means that udevd has not initialized the device.
	waiting bool
	// devpath, devnode and iommuGroup are those of the device itself or of an ancestor.
	devpath    string
	devnode    string
	iommuGroup string
	// properties are those of the device itself.
	properties map[string]string
}

func (s Spec) matches(device rules.Device) bool {
	return slices.ContainsFunc(s.Rules, func(rule rules.Rule) bool { return rule.Matches(device) })
}

// nearestWithDevnode returns the device or its nearest ancestor with a device node: rules often
// match an interface of the device that a broker opens. Without any, it returns the device.
func nearestWithDevnode(device rules.Device) rules.Device {
	for next := device; next != nil; next = next.Parent() {
		if next.Devnode() != "" {
			return next
		}
	}
	return device
}

// maxPropertySize limits the size of a property, name included, in bytes.
const maxPropertySize = 4 << 10

// readProperties returns the properties of a device. It leaves out those without a value and those
// that an environment variable cannot hold, such as binary attributes.
func (s Spec) readProperties(device rules.Device) map[string]string {
	values := make(map[string]string, len(s.Properties))
	for name, source := range s.Properties {
		value := source.Read(device)
		if value != "" && len(name)+len(value) <= maxPropertySize && isText(value) {
			values[name] = value
		}
	}
	return values
}

// isText rejects control characters, too: libudev cuts off a binary attribute at its first zero
// byte, and the rest may be valid UTF-8.
func isText(value string) bool {
	return utf8.ValidString(value) &&
		!strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' })
}

// describe returns the device for a group of matches. The first is its identity. Without
// groupRecursive, all have the same devpath, and property names have no index.
func (s Spec) describe(group []match) *handler.Device {
	top := group[0]
	device := &handler.Device{Id: top.devpath, Properties: map[string]string{"UDEV_DEVPATH": top.devpath}}

	index := 0
	for i, member := range group {
		addMissing(device.Properties, member.properties)
		if member.devnode == "" || i > 0 && member.devpath == group[i-1].devpath {
			continue
		}
		suffix := ""
		if s.GroupRecursive {
			suffix = fmt.Sprintf("_%d", index)
		}
		index++
		device.Properties["UDEV_DEVNODE"+suffix] = member.devnode
		device.DeviceSpecs = append(device.DeviceSpecs, deviceSpec(member.devnode, s.Permissions))
		if address, ok := usbAddress(member.devnode); ok && s.resourceSuffix != "" {
			device.Properties["USB_RESOURCE_"+s.resourceSuffix+suffix] = address
		}
	}

	s.describePCI(top, device)
	return device
}

func addMissing(properties, more map[string]string) {
	for name, value := range more {
		if _, exists := properties[name]; !exists {
			properties[name] = value
		}
	}
}

func (s Spec) describePCI(top match, device *handler.Device) {
	address, ok := lastPCIAddress(top.devpath)
	if !ok {
		return
	}
	if s.resourceSuffix != "" {
		device.Properties["PCI_RESOURCE_"+s.resourceSuffix] = address
	}
	if s.vfio && top.iommuGroup != "" {
		device.DeviceSpecs = append(device.DeviceSpecs,
			deviceSpec("/dev/vfio/"+top.iommuGroup, details.DefaultPermissions), deviceSpec("/dev/vfio/vfio", details.DefaultPermissions))
	}
}

func deviceSpec(path, permissions string) *handler.DeviceSpec {
	return &handler.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: permissions}
}

// usbAddress returns bus:device in decimal, the format of KubeVirt.
func usbAddress(devnode string) (string, bool) {
	parts := usbDevnode.FindStringSubmatch(devnode)
	if parts == nil {
		return "", false
	}
	bus, _ := strconv.Atoi(parts[1])
	number, _ := strconv.Atoi(parts[2])
	return fmt.Sprintf("%d:%d", bus, number), true
}

// lastPCIAddress returns the last PCI address in a devpath. It returns none for a USB device behind
// a PCI controller.
func lastPCIAddress(devpath string) (address string, ok bool) {
	for segment := range strings.SplitSeq(devpath, "/") {
		if strings.HasPrefix(segment, "usb") {
			return "", false
		}
		if pciAddress.MatchString(segment) {
			address, ok = segment, true
		}
	}
	return address, ok
}
