package onvif

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/services/handler-onvif/internal/cameras"
)

// list is the properties of devices by id.
type list map[string]map[string]string

// stream is what one Configuration is sent.
type stream struct {
	ended  <-chan error
	cancel func()
	news   chan struct{} // capacity 1: there is another list

	mu     sync.Mutex
	lists  []list // each differs from the one before
	refuse error  // what sending ends with
}

func (w *world) discover(t *testing.T, details string, properties map[string]string) *stream {
	t.Helper()
	s := &stream{news: make(chan struct{}, 1)}
	request := handler.Request{Details: details, Properties: map[string][]byte{}, Log: zap.NewNop()}
	for name, value := range properties {
		request.Properties[name] = []byte(value)
	}
	s.ended, s.cancel = background(t, func(ctx context.Context) error { return discover(ctx, w.census, request, s.send) })
	return s
}

func (s *stream) send(devices []*handler.Device) error {
	sent := list{}
	for _, device := range devices {
		sent[device.GetId()] = device.GetProperties()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lists) == 0 || !reflect.DeepEqual(s.lists[len(s.lists)-1], sent) {
		s.lists = append(s.lists, sent)
		notify(s.news)
	}
	return s.refuse
}

// all returns the lists that were sent.
func (s *stream) all() []list {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

// last returns the last list.
func (s *stream) last(t *testing.T) list {
	t.Helper()
	lists := s.all()
	require.NotEmpty(t, lists, "nothing was sent")
	return lists[len(lists)-1]
}

// properties are what every device of the camera has.
func (c *camera) properties() map[string]string {
	return map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": c.url, "ONVIF_DEVICE_UUID": c.uuid, "ONVIF_DEVICE_IP_ADDRESS": c.ip, "ONVIF_DEVICE_MAC_ADDRESS": c.mac,
	}
}

// unknown are the properties of a camera that did not tell its network.
func (c *camera) unknown() map[string]string {
	return map[string]string{"ONVIF_DEVICE_SERVICE_URL": c.url, "ONVIF_DEVICE_UUID": c.uuid}
}

func (c *camera) id() string { return c.url + "-" + c.uuid }

func TestDevicesHaveWhatTheirCamerasTold(t *testing.T) {
	door := plug(t, "door")
	about := func(more map[string]string, but ...string) map[string]string {
		properties := door.properties()
		maps.Copy(properties, more)
		for _, name := range but {
			delete(properties, name)
		}
		return properties
	}
	for name, test := range map[string]struct {
		details string
		change  func(*camera)
		want    list
		asked   []string
	}{
		"as Akri":            {want: list{door.id(): about(nil)}, asked: []string{askTime, askInterfaces}},
		"identity by UUID":   {details: "identity: uuid", want: list{"door": about(nil)}, asked: []string{askTime, askInterfaces}},
		"device information": {details: "deviceInformation: true", want: list{door.id(): about(map[string]string{"ONVIF_DEVICE_MANUFACTURER": "Akri", "ONVIF_DEVICE_MODEL": "Peephole"})}, asked: []string{askTime, askInterfaces, askInformation}},
		"what is not told": {
			change: func(c *camera) { c.ip, c.mac = "", "" }, want: list{door.id(): about(nil, "ONVIF_DEVICE_IP_ADDRESS", "ONVIF_DEVICE_MAC_ADDRESS")},
			asked: []string{askTime, askInterfaces},
		},
		"what is too long": {
			details: "deviceInformation: true", change: func(c *camera) { c.model = strings.Repeat("x", maxProperty+1) },
			want: list{door.id(): about(map[string]string{"ONVIF_DEVICE_MANUFACTURER": "Akri"})}, asked: []string{askTime, askInterfaces, askInformation},
		},
		"no network, and then no more questions": {
			details: "deviceInformation: true", change: func(c *camera) { c.fails[askInterfaces] = http.StatusUnauthorized },
			want: list{door.id(): door.unknown()}, asked: []string{askTime, askInterfaces},
		},
		"no information": {
			details: "deviceInformation: true", change: func(c *camera) { c.fails[askInformation] = http.StatusNotFound },
			want: list{door.id(): about(nil)}, asked: []string{askTime, askInterfaces, askInformation},
		},
	} {
		t.Run(name, func(t *testing.T) {
			door.questions()
			ip, mac, model := door.ip, door.mac, door.model
			if test.change != nil {
				door.set(test.change)
			}
			defer door.set(func(c *camera) { c.ip, c.mac, c.model, c.fails = ip, mac, model, map[string]int{} })
			bubble(t, func(t *testing.T, w *world) {
				found := w.discover(t, test.details, nil)
				w.say(match(door))
				pass(3 * time.Second)
				require.Equal(t, []list{test.want}, found.all())
				require.Equal(t, test.asked, door.questions())
			})
		})
	}
}

func TestTheFirstListComesWhenAllCouldAnswer(t *testing.T) {
	door := plug(t, "door")
	const probed = 500 * time.Millisecond // the last of the first probes
	for name, test := range map[string]struct {
		details string
		busy    bool
		want    time.Duration
	}{
		"as long as Akri waits":      {want: probed + time.Second},
		"as long as it is told":      {details: "discoveryTimeoutSeconds: 4", want: probed + 4*time.Second},
		"longer than cameras may":    {details: "discoveryTimeoutSeconds: 20", want: probed + 20*time.Second},
		"not at all":                 {details: "discoveryTimeoutSeconds: 0", want: probed},
		"nor for what never is done": {busy: true, want: time.Second + firstListWithin},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.busy.Store(test.busy)
				full := w.discover(t, test.details, nil)
				empty := w.discover(t, test.details+"\nuuids: {items: []}", nil)
				w.say(match(door))
				pass(test.want - 1)
				require.Empty(t, full.all())
				require.Empty(t, empty.all())
				pass(settleEvery + 2*moment)
				require.Equal(t, []list{{door.id(): door.properties()}}, full.all())
				require.Equal(t, []list{{}}, empty.all(), "an empty list is one too")
			})
		})
	}
}

func TestAnotherConfigurationIsAnsweredAtOnce(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		w.discover(t, "", nil)
		w.say(match(door))
		pass(interval + interval/2) // in the middle between two checks
		door.questions()
		second := w.discover(t, "", nil)
		pass(2 * moment)
		require.Equal(t, []list{{door.id(): door.properties()}}, second.all())
		require.Equal(t, []string{askInterfaces}, door.questions(), "whether it is there is known")
	})
}

func TestFilters(t *testing.T) {
	door, yard, shed := plug(t, "door"), plug(t, "yard"), plug(t, "shed")
	yard.ip, yard.mac = "10.0.0.8", "AA:BB"
	shed.fails[askInterfaces] = http.StatusUnauthorized // nobody knows its addresses
	all := []*camera{door, yard, shed}
	for details, test := range map[string]struct{ found, asked []*camera }{
		"":                       {found: all, asked: all},
		"uuids: {items: [DOOR]}": {found: all[:1], asked: all[:1]},
		"uuids: {action: Exclude, items: [Door]}":                          {found: all[1:], asked: all[1:]},
		"scopes: {items: ['" + yard.scope + "']}":                          {found: all[1:2], asked: all[1:2]},
		"scopes: {action: Exclude, items: ['" + yard.scope + "']}":         {found: []*camera{door, shed}, asked: []*camera{door, shed}},
		"ipAddresses: {items: [10.0.0.8, 10.0.0.9]}":                       {found: all[1:2], asked: all},
		"ipAddresses: {action: Exclude, items: [10.0.0.8]}":                {found: all[:1], asked: all},
		"macAddresses: {items: ['aa:bb']}":                                 {found: all[1:2], asked: all},
		"macAddresses: {action: Exclude, items: []}":                       {found: all, asked: all},
		"macAddresses: {items: []}":                                        {asked: all},
		"uuids: {items: [door, shed]}\nipAddresses: {items: ['10.0.0.7']}": {found: all[:1], asked: []*camera{door, shed}},
	} {
		t.Run(details, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				found := w.discover(t, details, nil)
				w.say(match(door), match(yard), match(shed))
				pass(3 * time.Second)
				want := list{}
				for _, camera := range test.found {
					want[camera.id()] = camera.properties()
				}
				if _, ok := want[shed.id()]; ok {
					want[shed.id()] = shed.unknown()
				}
				require.Equal(t, want, found.last(t))
				for _, camera := range all {
					require.Equal(t, slices.Contains(test.asked, camera), count(camera.questions(), askInterfaces) == 1, camera.uuid)
				}
			})
		})
	}
}

func TestEachCameraIsAskedWithItsCredentialsByItsClock(t *testing.T) {
	door, yard := plug(t, "door"), plug(t, "yard")
	door.ahead = hour + 2*time.Second
	for name, test := range map[string]struct {
		properties map[string]string
		door, yard string
	}{
		"none":                       {door: askInterfaces, yard: askInterfaces},
		"its own before all":         {properties: map[string]string{"username_door": "ada", "username_default": "guest"}, door: " as ada at 2000-01-01T01:00:0", yard: " as guest at 2000-01-01T00:00:0"},
		"only its own":               {properties: map[string]string{"username_DOOR": "ada"}, door: " as ada at ", yard: askInterfaces},
		"those that can be read":     {properties: map[string]string{"device_credential_list": "nonsense", "username_default": "guest"}, door: " as guest at ", yard: " as guest at "},
		"a list of several":          {properties: map[string]string{"device_credential_list": `["cellar"]`, "cellar": `{"yard": {"username": "bob"}}`}, door: askInterfaces, yard: " as bob at "},
		"that cannot be read at all": {properties: map[string]string{"device_credential_list": `["cellar"]`}, door: askInterfaces, yard: askInterfaces},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				found := w.discover(t, "", test.properties)
				pass(1500 * time.Millisecond) // a camera tells whole seconds
				w.say(match(door), match(yard))
				pass(3 * time.Second)
				require.Len(t, found.last(t), 2)
				for camera, want := range map[*camera]string{door: test.door, yard: test.yard} {
					asked := camera.questions()
					require.Equal(t, askTime, asked[0], "its time is for everyone")
					require.Len(t, asked, 2)
					if want == askInterfaces {
						require.Equal(t, askInterfaces, asked[1])
					} else {
						require.Contains(t, asked[1], askInterfaces+want)
					}
				}
			})
		})
	}
}

func TestAQuestionIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		after  time.Duration
	}{
		"soon, without an answer":                {status: http.StatusInternalServerError, after: retryEvery},
		"later, as cameras lock out who insists": {status: http.StatusUnauthorized, after: refreshEvery},
		"later, when it was answered":            {after: refreshEvery},
	} {
		t.Run(name, func(t *testing.T) {
			door := plug(t, "door")
			door.fails[askInterfaces] = test.status
			bubble(t, func(t *testing.T, w *world) {
				found := w.discover(t, "", map[string]string{"username_default": "ada"})
				w.say(match(door))
				pass(test.after - time.Second)
				require.Equal(t, 1, count(door.questions(), askInterfaces))
				want := door.properties()
				if test.status != 0 {
					want = door.unknown()
				}
				require.Equal(t, []list{{door.id(): want}}, found.all(), "it is there all the same")
				door.set(func(c *camera) { c.fails[askInterfaces], c.ip = 0, "10.0.0.9" })
				pass(2 * time.Second)
				require.Equal(t, 1, count(door.questions(), askInterfaces))
				require.Equal(t, list{door.id(): door.properties()}, found.last(t))
			})
		})
	}
}

func TestWhatACameraToldStaysWhenItDoesNotSayItAgain(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		found := w.discover(t, "", nil)
		w.say(match(door))
		pass(time.Minute)
		require.Len(t, found.all(), 1)
		door.set(func(c *camera) { c.fails[askInterfaces] = http.StatusInternalServerError })
		pass(refreshEvery)
		require.Greater(t, count(door.questions(), askInterfaces), 2)
		require.Equal(t, []list{{door.id(): door.properties()}}, found.all())
	})
}

func TestACameraLeavesAndComesBack(t *testing.T) {
	door := plug(t, "door")
	bubble(t, func(t *testing.T, w *world) {
		found := w.discover(t, "", nil)
		w.say(match(door))
		pass(3 * time.Second)
		door.hangUp(true)
		pass(2 * interval)
		door.hangUp(false)
		door.set(func(c *camera) { c.ip = "10.0.0.9" })
		w.say(hello(door))
		pass(3 * time.Second)
		before := door.properties()
		before["ONVIF_DEVICE_IP_ADDRESS"] = "10.0.0.7"
		require.Equal(t, []list{{door.id(): before}, {}, {door.id(): door.properties()}}, found.all())
	})
}

func TestACameraThatMovesIsAskedWhereItIs(t *testing.T) {
	for name, test := range map[string]struct {
		details string
		id      func(*camera) string
	}{
		"identity by URL":  {details: "identity: url", id: (*camera).id},
		"identity by UUID": {details: "identity: uuid", id: func(c *camera) string { return c.uuid }},
	} {
		t.Run(name, func(t *testing.T) {
			door, elsewhere := plug(t, "door"), plug(t, "door")
			elsewhere.ip = "10.0.0.8"
			bubble(t, func(t *testing.T, w *world) {
				found := w.discover(t, test.details, nil)
				w.say(match(door))
				pass(3 * time.Second)
				door.hangUp(true)
				w.say(hello(door, elsewhere.url))
				pass(3 * time.Second)
				require.Equal(t, []list{{test.id(door): door.properties()}, {test.id(elsewhere): elsewhere.properties()}}, found.all(),
					"no list lacks it meanwhile")
			})
		})
	}
}

func TestACameraThatMovedWithoutAnswersThereHasWhatIsKnown(t *testing.T) {
	door, elsewhere := plug(t, "door"), plug(t, "door")
	elsewhere.fails[askInterfaces] = http.StatusUnauthorized
	bubble(t, func(t *testing.T, w *world) {
		found := w.discover(t, "", nil)
		w.say(match(door))
		pass(3 * time.Second)
		door.hangUp(true)
		w.say(hello(door, elsewhere.url))
		pass(3 * time.Second)
		require.Equal(t, list{elsewhere.id(): elsewhere.unknown()}, found.last(t), "not the address that it had")
	})
}

func TestAnAnswerFromWhereACameraWasOrOfOneThatLeftIsNotTaken(t *testing.T) {
	moved := &subject{camera: cameras.Camera{UUID: "door", URL: "http://there/"}, asking: true, again: time.Now().Add(hour)}
	s := &survey{log: zap.NewNop(), subjects: map[string]*subject{"door": moved}}
	s.take(answer{camera: cameras.Camera{UUID: "door", URL: "http://here/"}})
	s.take(answer{camera: cameras.Camera{UUID: "gone", URL: "http://here/"}})
	require.Nil(t, moved.facts)
	require.Zero(t, s.pause(true), "it is asked again at once")
	require.Len(t, s.subjects, 1)
}

func TestMistakesInDetailsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for details, want := range map[string]string{
			"uuid: {}":                     `unknown key "uuid"`,
			"uuids: {action: Include}":     "discoveryDetails: uuids: items: required",
			"identity: name":               `discoveryDetails: identity: "name"`,
			"discoveryTimeoutSeconds: 601": "discoveryDetails: discoveryTimeoutSeconds: 601",
		} {
			require.ErrorContains(t, <-w.discover(t, details, nil).ended, want)
		}
		pass(time.Second)
		require.Empty(t, w.probes(), "nobody is asked for it")
	})
}

func TestDiscoveryEndsWithItsStreamAndLeavesNobodyFollowing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other := w.discover(t, "", nil)
		broken := w.discover(t, "", nil)
		broken.mu.Lock()
		broken.refuse = errors.New("nobody listens")
		broken.mu.Unlock()
		pass(3 * time.Second)
		require.EqualError(t, <-broken.ended, "nobody listens")
		require.True(t, w.review())
		other.cancel()
		require.NoError(t, <-other.ended)
		require.False(t, w.review())
	})
}

// In real time, as in the tests of the census.

func TestDiscoveryEndsInTheMiddleOfQuestionsOfWhichThereAreNotTooManyAtOnce(t *testing.T) {
	const cameras, atOnce = 8, 2
	tarpit := plug(t, "tarpit")
	tarpit.holding[askInterfaces] = true
	w := newWorld(t, hour, atOnce) // all are checked once
	first := w.discover(t, "discoveryTimeoutSeconds: 0", nil)
	for i := range cameras {
		w.say(match(&camera{uuid: fmt.Sprint("camera-", i), url: fmt.Sprint(tarpit.url, "/", i)}))
	}
	for range atOnce {
		handlertest.Receive(t, tarpit.held)
	}
	first.cancel()
	require.NoError(t, handlertest.Receive(t, first.ended))
	require.Empty(t, first.all())
	require.Eventually(t, func() bool { return tarpit.waiting() == 0 }, handlertest.Patience, time.Millisecond)

	second := w.discover(t, "discoveryTimeoutSeconds: 0", nil)
	for range atOnce {
		handlertest.Receive(t, tarpit.held)
	}
	close(tarpit.release)
	handlertest.Receive(t, second.news)
	require.Len(t, second.last(t), cameras, "nobody is forgotten")
	tarpit.set(func(c *camera) { require.LessOrEqual(t, c.most, atOnce) })
}
