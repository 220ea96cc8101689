package discovery

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// properties returns the properties of a camera that reports its addresses.
func (c *fakeCamera) properties() map[string]string {
	return map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": c.url, "ONVIF_DEVICE_UUID": c.uuid,
		"ONVIF_DEVICE_IP_ADDRESS": c.ip, "ONVIF_DEVICE_MAC_ADDRESS": c.mac,
	}
}

// minimalProperties returns the properties of a camera that does not report its addresses.
func (c *fakeCamera) minimalProperties() map[string]string {
	return map[string]string{"ONVIF_DEVICE_SERVICE_URL": c.url, "ONVIF_DEVICE_UUID": c.uuid}
}

func (c *fakeCamera) id() string { return c.url + "-" + c.uuid }

func TestDevices(t *testing.T) {
	door := newFakeCamera(t, "door")
	properties := func(added map[string]string, removed ...string) map[string]string {
		properties := door.properties()
		maps.Copy(properties, added)
		for _, name := range removed {
			delete(properties, name)
		}
		return properties
	}
	for name, test := range map[string]struct {
		details  string
		change   func(*fakeCamera)
		want     list
		requests []string
	}{
		"no details": {want: list{door.id(): properties(nil)}, requests: []string{getTime, getInterfaces}},
		"identity by UUID": {
			details: "identity: uuid",
			want:    list{"door": properties(nil)}, requests: []string{getTime, getInterfaces},
		},
		"device information": {
			details:  "deviceInformation: true",
			want:     list{door.id(): properties(map[string]string{"ONVIF_DEVICE_MANUFACTURER": "Akri", "ONVIF_DEVICE_MODEL": "Peephole"})},
			requests: []string{getTime, getInterfaces, getInformation},
		},
		"no addresses": {
			change:   func(c *fakeCamera) { c.ip, c.mac = "", "" },
			want:     list{door.id(): properties(nil, "ONVIF_DEVICE_IP_ADDRESS", "ONVIF_DEVICE_MAC_ADDRESS")},
			requests: []string{getTime, getInterfaces},
		},
		"too long property": {
			details: "deviceInformation: true", change: func(c *fakeCamera) { c.model = strings.Repeat("x", maxProperty+1) },
			want:     list{door.id(): properties(map[string]string{"ONVIF_DEVICE_MANUFACTURER": "Akri"})},
			requests: []string{getTime, getInterfaces, getInformation},
		},
		"no second request after refused credentials": {
			details: "deviceInformation: true", change: func(c *fakeCamera) { c.status[getInterfaces] = http.StatusUnauthorized },
			want: list{door.id(): door.minimalProperties()}, requests: []string{getTime, getInterfaces},
		},
		"no information": {
			details: "deviceInformation: true", change: func(c *fakeCamera) { c.status[getInformation] = http.StatusNotFound },
			want: list{door.id(): properties(nil)}, requests: []string{getTime, getInterfaces, getInformation},
		},
	} {
		t.Run(name, func(t *testing.T) {
			door.requests()
			ip, mac, model := door.ip, door.mac, door.model
			if test.change != nil {
				door.set(test.change)
			}
			defer door.set(func(c *fakeCamera) { c.ip, c.mac, c.model, c.status = ip, mac, model, map[string]int{} })
			bubble(t, func(t *testing.T, h *harness) {
				stream := h.discover(t, test.details, nil)
				h.receive(match(door))
				advance(3 * time.Second)
				require.Equal(t, []list{test.want}, stream.all())
				require.Equal(t, test.requests, door.requests())
			})
		})
	}
}

func TestFilters(t *testing.T) {
	door, yard, shed := newFakeCamera(t, "door"), newFakeCamera(t, "yard"), newFakeCamera(t, "shed")
	yard.ip, yard.mac = "10.0.0.8", "AA:BB"
	shed.status[getInterfaces] = http.StatusUnauthorized // its addresses are unknown
	all := []*fakeCamera{door, yard, shed}
	// listed cameras match all filters, queried cameras match those that need no query.
	for details, test := range map[string]struct{ listed, queried []*fakeCamera }{
		"":                       {listed: all, queried: all},
		"uuids: {items: [DOOR]}": {listed: all[:1], queried: all[:1]},
		"uuids: {action: Exclude, items: [Door]}":                          {listed: all[1:], queried: all[1:]},
		"scopes: {items: ['" + yard.scope + "']}":                          {listed: all[1:2], queried: all[1:2]},
		"scopes: {action: Exclude, items: ['" + yard.scope + "']}":         {listed: []*fakeCamera{door, shed}, queried: []*fakeCamera{door, shed}},
		"ipAddresses: {items: [10.0.0.8, 10.0.0.9]}":                       {listed: all[1:2], queried: all},
		"ipAddresses: {action: Exclude, items: [10.0.0.8]}":                {listed: all[:1], queried: all},
		"macAddresses: {items: ['aa:bb']}":                                 {listed: all[1:2], queried: all},
		"macAddresses: {action: Exclude, items: []}":                       {listed: all, queried: all},
		"macAddresses: {items: []}":                                        {queried: all},
		"uuids: {items: [door, shed]}\nipAddresses: {items: ['10.0.0.7']}": {listed: all[:1], queried: []*fakeCamera{door, shed}},
	} {
		t.Run(details, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				stream := h.discover(t, details, nil)
				h.receive(match(door), match(yard), match(shed))
				advance(3 * time.Second)
				want := list{}
				for _, camera := range test.listed {
					want[camera.id()] = camera.properties()
				}
				if _, ok := want[shed.id()]; ok {
					want[shed.id()] = shed.minimalProperties()
				}
				require.Equal(t, want, stream.last(t))
				for _, camera := range all {
					require.Equal(t, slices.Contains(test.queried, camera), count(camera.requests(), getInterfaces) == 1, camera.uuid)
				}
			})
		})
	}
}
