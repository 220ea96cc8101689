package discovery

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
)

// explain returns the closest cameras.
func (h *harness) explain(t *testing.T, details string) []*handler.NearMiss {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	closest, err := h.Explain(ctx, handler.Request{Details: details})
	require.NoError(t, err)
	return closest
}

func TestExplain(t *testing.T) {
	door, yard := newFakeCamera(t, "aaaaaaaa-1111"), newFakeCamera(t, "bbbbbbbb-2222")
	door.scope, yard.scope = "onvif://www.onvif.org/name/front-door", "onvif://www.onvif.org/name/yard"
	door.ip, door.mac = "10.0.0.17", "00:11:22:33:44:55"
	yard.ip, yard.mac = "10.0.77.200", "66:77:88:99:aa:bb"
	const scope = "onvif://www.onvif.org/name/"
	for _, test := range []struct {
		details, condition string
		camera             *fakeCamera
		found, corrected   string
	}{
		{"scopes: {items: ['" + scope + "front-dor']}", `scopes: Include ["` + scope + `front-dor"]`, door, door.scope, "scopes: {items: ['" + door.scope + "']}\n"},
		{"scopes: {items: ['" + scope + "Front-Door']} # one", `scopes: Include ["` + scope + `Front-Door"]`, door, door.scope, "scopes: {items: ['" + door.scope + "']} # one\n"},
		{"uuids: {items: [aaaaaaaa-1112]}", `uuids: Include ["aaaaaaaa-1112"]`, door, door.uuid, "uuids: {items: [aaaaaaaa-1111]}\n"},
		{"ipAddresses: {items: [10.0.0.18]}", `ipAddresses: Include ["10.0.0.18"]`, door, door.ip, "ipAddresses: {items: [10.0.0.17]}\n"},
		{"macAddresses: {items: [66-77-88-99-AA-BB]}", `macAddresses: Include ["66-77-88-99-AA-BB"]`, yard, yard.mac, "macAddresses: {items: ['66:77:88:99:aa:bb']}\n"},
		// the user excludes the camera
		{"scopes: {items: ['" + yard.scope + "']}\nuuids: {items: [bbbbbbbb-2222], action: Exclude}", `uuids: Exclude ["bbbbbbbb-2222"]`, yard, yard.uuid, ""},
		// nothing similar
		{"scopes: {items: ['onvif://www.onvif.org/hardware/x']}", `scopes: Include ["onvif://www.onvif.org/hardware/x"]`, yard, yard.scope, ""},
	} {
		t.Run(test.details, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *harness) {
				h.discover(t, "", nil) // gets the addresses
				h.receive(match(door), match(yard))
				advance(3 * time.Second)
				closest := h.explain(t, test.details)
				require.NotEmpty(t, closest)
				require.Equal(t, test.condition, closest[0].GetMismatches()[0].GetCondition())
				require.Equal(t, test.camera.url, closest[0].GetDevice())
				require.Equal(t, test.found, closest[0].GetMismatches()[0].GetFound()[0])
				require.Equal(t, test.corrected, closest[0].GetCorrectedDetails())
			})
		})
	}
}

// Cameras whose addresses are not known have no value.
func TestExplainUnknownAddresses(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		h.discover(t, "uuids: {items: [other]}", nil) // does not query the camera
		h.receive(match(door))
		advance(3 * time.Second)
		closest := h.explain(t, "ipAddresses: {items: [10.0.0.8]}")
		require.Len(t, closest, 1)
		require.Empty(t, closest[0].GetMismatches()[0].GetFound())
		require.Empty(t, h.explain(t, "uuids: {items: [door]}"), "the camera matches")
	})
}

// Without a Discover stream, cameras are looked for, for half of the time of the caller.
func TestExplainWithoutStream(t *testing.T) {
	door := newFakeCamera(t, "front-door")
	bubble(t, func(t *testing.T, h *harness) {
		require.Empty(t, h.explain(t, "uuids: {items: [fron-door]}"))
		start := time.Now()
		require.Empty(t, h.explain(t, "uuids: {items: [fron-door]}\ndiscoveryTimeoutSeconds: 100"))
		require.Equal(t, time.Second, time.Since(start))
		h.receive(match(door))
		advance(time.Second)
		require.Equal(t, "uuids: {items: [front-door]}\n", h.explain(t, "uuids: {items: [fron-door]}")[0].GetCorrectedDetails())
	})
}

func TestExplainInvalidDetails(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		_, err := h.Explain(t.Context(), handler.Request{Details: "uuid: {}"})
		require.ErrorContains(t, err, `unknown key "uuid"`)
	})
}

// A camera that is gone is forgotten.
func TestAddressesAreThoseOfCameras(t *testing.T) {
	door := newFakeCamera(t, "door")
	bubble(t, func(t *testing.T, h *harness) {
		h.discover(t, "", nil)
		h.receive(match(door))
		advance(3 * time.Second)
		require.Equal(t, door.ip, h.addressesOf(door.uuid).IP)
		door.setOffline(true)
		advance(5 * interval)
		require.Empty(t, h.addressesOf(door.uuid))
	})
}
