package console_test

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/console"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/timeline"
	"akri.sh/libs/trial"
)

// source has objects that the test changes.
type source struct {
	mu       sync.Mutex
	snapshot explain.Snapshot
	events   []corev1.Event
	timeline timeline.Timeline
	health   cache.Health
	changes  broadcast.Value[int]
}

func (s *source) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changes.Set(0)
}

func (s *source) Snapshot() *explain.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := s.snapshot
	return &snapshot
}

func (s *source) Events() []corev1.Event { return s.events }

func (s *source) Timeline(_, name string) timeline.Timeline {
	if name == "camera-8120fe" || name == "camera-gone" {
		return s.timeline
	}
	return timeline.Timeline{Since: s.timeline.Since}
}

func (s *source) Health() cache.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health
}

func (s *source) Changed() <-chan struct{} {
	_, changed := s.changes.Get()
	return changed
}

func load(t *testing.T, files ...string) *source {
	t.Helper()
	paths := []string{"../explain/testdata/healthy.yaml"}
	for _, file := range files {
		paths = append(paths, "../explain/testdata/"+file+".yaml")
	}
	return &source{snapshot: *fixture.Load(t, paths...)}
}

func get(t *testing.T, s console.Source, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	console.Handler(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestPages(t *testing.T) {
	s := load(t, "tainted-node")
	s.snapshot.Instances[0].Spec.BrokerProperties = map[string]string{"LOGIN": "hunter22"}
	s.snapshot.Unreadable = []string{"jobs"}
	s.events = []corev1.Event{{
		InvolvedObject: corev1.ObjectReference{Kind: "Configuration", Namespace: "default", Name: "camera"}, Type: "Normal", Reason: "DeviceAdded",
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{akriv0.DevicesAnnotation: "camera-000000,camera-8120fe"}},
		Message:    "camera-000000 on node-a, camera-8120fe on node-a", LastTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}, {
		InvolvedObject: corev1.ObjectReference{Kind: "Configuration", Namespace: "default", Name: "camera"}, Type: "Normal", Reason: "DeviceAdded",
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{akriv0.DevicesAnnotation: "camera-8120fex8120fe"}},
		Message:    "camera-8120fex8120fe on node-a",
	}, {
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "node-a-camera-8120fe-pod"}, Type: "Warning", Reason: "BackOff",
		Message: "Back-off restarting failed container",
	}, {
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node-a"}, Type: "Warning", Reason: "Rebooted",
		Message: "Node node-a has been rebooted",
	}}
	s.snapshot.Configurations[0].Spec.DiscoveryHandler.DiscoveryDetails = "ipAddresses: {}"
	for path, parts := range map[string][]string{
		"/":                                      {"2/2</strong> slots", "You may not list: jobs", "No problem is known", `href="/nodes"`},
		"/devices":                               {"1 device<", "camera-8120fe", `href="/nodes/node-a"`, `<meter min="0" max="2" value="2"`},
		"/devices?q=CAM-1+node-b":                {"1 device<", "camera-8120fe"},
		"/devices/default/camera-8120fe":         {"LOGIN", `<td data-label="Slot">camera-8120fe-0</td>`, `href="/pods/default/node-a-camera-8120fe-pod"`, `title="2026-01-02 03:04:05 UTC"`, "camera-000000 on node-a, camera-8120fe on node-a"},
		"/configurations":                        {"default/camera"},
		"/configurations/default/camera":         {"SlotsReadable", "camera-8120fe", "devices found", "2 slots of each device", `href="/nodes/node-b"`, "ipAddresses: {}", "2 of 2 ready"},
		"/nodes":                                 {`href="/nodes/node-c"`, "3 nodes<", "it does not tolerate dedicated=gpu:NoSchedule"},
		"/nodes/node-a":                          {"camera-8120fe-0", "akri-discovery-operator-a", "/var/lib/akri/onvif.sock", `href="/pods/default/node-a-camera-8120fe-pod"`, "Node node-a has been rebooted"},
		"/nodes/node-c":                          {"it does not tolerate dedicated=gpu:NoSchedule"},
		"/pods":                                  {"8 Pods<", "akri-discovery-operator-a"},
		"/pods?kind=broker&node=node-a":          {"node-a-camera-8120fe-pod", "1 of "},
		"/pods/default/node-a-camera-8120fe-pod": {"containers run", `href="/devices/default/camera-8120fe"`, "Back-off restarting"},
		"/pods/akri-system/akri-discovery-operator-a": {"all are ready"},
		"/handlers":          {"node-a", "Active"},
		"/services":          {"broker-controller", "v0.1.0"},
		"/events":            {"DeviceAdded", `href="/configurations/default/camera"`},
		"/static/console.js": {"EventSource"},
	} {
		w := get(t, s, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotContains(t, w.Body.String(), "hunter22", path)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'", path)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"), path)
		for _, part := range parts {
			require.Contains(t, w.Body.String(), part, path)
		}
	}

	// An Event about a device is not shown for another one whose name begins like it.
	require.NotContains(t, get(t, s, "/devices/default/camera-8120fe").Body.String(), "camera-8120fex8120fe")
}

func TestExplanation(t *testing.T) {
	page := get(t, load(t, "misspelt-handler"), "/configurations/default/camera").Body.String()
	require.Contains(t, page, "NoSuchHandler")
	require.Contains(t, page, "kubectl patch configuration.akri.sh camera")
}

// The devices that come closest are shown if the viewer may ask for them, and else the command.
func TestClosestDevices(t *testing.T) {
	s := load(t, "nothing-matched")
	const path, command = "/configurations/default/camera", "kubectl akri explain configuration camera --namespace default"
	require.Contains(t, get(t, s, path).Body.String(), command)

	asked := 0
	handler := console.Restricted(func(*http.Request) (console.Viewer, http.Handler) {
		return console.Viewer{Source: s, Closest: func(_ context.Context, snapshot *explain.Snapshot, c *akriv0.Configuration) []trial.Group {
			asked++
			require.NotEmpty(t, snapshot.Pods)
			require.Equal(t, "camera", c.Name)
			return []trial.Group{{
				Kind: "<block>", Mismatches: []trial.Mismatch{{Condition: `KERNEL=="zrm*"`, Found: []string{"<zram0>"}}}, CorrectedDetails: "udevRules: <b>",
				Devices: []trial.Devices{{Nodes: []string{"node-a"}, First: "/dev/zram0", Series: []trial.Series{{First: "/dev/zram0", Count: 1}}, Count: 1}},
			}}
		}}, nil
	})
	page := func() string {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code)
		return html.UnescapeString(w.Body.String())
	}
	text := page()
	require.Contains(t, text, `<li>/dev/zram0 (<block>) on node-a: KERNEL=="zrm*" did not match: it is "<zram0>"</li>`)
	require.Contains(t, text, "<code>udevRules: <b></code>")
	require.NotContains(t, text, command)

	s.snapshot = *fixture.Load(t, "../explain/testdata/healthy.yaml")
	require.NotContains(t, page(), "Closest devices")
	require.Equal(t, 1, asked)
}

// The timeline of a device that was removed stays.
func TestTimeline(t *testing.T) {
	s := load(t)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const path = "/devices/default/camera-8120fe"
	require.Contains(t, get(t, s, path).Body.String(), "no record of this device")
	s.timeline = timeline.Timeline{Since: begin}
	text := get(t, s, path).Body.String()
	require.Contains(t, text, "Nothing has happened since it started")
	require.Contains(t, text, `datetime="2026-01-02T03:04:05Z"`)

	s.timeline.Entries = []timeline.Entry{{Time: begin.Add(time.Hour), Text: "<b> sees it"}}
	for path, code := range map[string]int{path: http.StatusOK, "/devices/default/camera-gone": http.StatusNotFound} {
		w := get(t, s, path)
		require.Equal(t, code, w.Code, path)
		require.Contains(t, w.Body.String(), `title="2026-01-02 04:04:05 UTC"`, path)
		require.Contains(t, w.Body.String(), ": &lt;b&gt; sees it</li>", path)
	}
}

func TestMissingObjects(t *testing.T) {
	for _, path := range []string{"/devices/default/none", "/configurations/default/none", "/pods/default/none", "/none"} {
		require.Equal(t, http.StatusNotFound, get(t, load(t), path).Code, path)
	}
	w := httptest.NewRecorder()
	console.Handler(load(t)).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/devices", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

// A device chooses its id.
func TestHostileDevice(t *testing.T) {
	s := load(t)
	s.snapshot.Instances[0].Annotations[akriv0.DeviceIDAnnotation] = "<script>alert(1)</script>\n\ndata: x"
	for _, path := range []string{"/devices", "/devices?q=%22%3E%3Cscript%3Ealert(1)", "/devices/default/camera-8120fe", "/devices/default/%3Cscript%3Ealert(1)"} {
		require.NotContains(t, get(t, s, path).Body.String(), "<script>alert", path)
	}
}

func TestSearch(t *testing.T) {
	s := load(t)
	for i := range 1200 {
		s.snapshot.Instances = append(s.snapshot.Instances, akriv0.Instance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: fmt.Sprintf("disk-%d", i)},
			Spec:       akriv0.InstanceSpec{ConfigurationName: "disk", Nodes: []string{fmt.Sprintf("node-%d", i%10)}},
			Status:     akriv0.InstanceStatus{SlotsFree: 1, SlotsUsed: int32(i % 2)},
		})
	}
	for query, want := range map[string]string{
		"":                            "1201 devices; the first 1000 are shown",
		"?q=disk-77+many":             "11 of 1201 devices<",
		"?node=node-3":                "120 of 1201 devices<",
		"?configuration=many/disk":    "1200 of 1201 devices; the first 1000",
		"?slots=full":                 "1 of 1201 devices<",
		"?slots=free&node=node-b":     "0 of 1201 devices<",
		"?configuration=default/disk": "0 of 1201 devices<",
	} {
		require.Contains(t, get(t, s, "/devices"+query).Body.String(), want, query)
	}
}

// TestStream checks that an open page gets the changes that it shows, and no others.
func TestStream(t *testing.T) {
	s := load(t)
	server := httptest.NewServer(console.Handler(s))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/devices", nil)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/event-stream")
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	next := func() string {
		var message strings.Builder
		for lines.Scan() && lines.Text() != "" {
			line, isData := strings.CutPrefix(lines.Text(), "data: ")
			require.True(t, isData, lines.Text())
			message.WriteString(line + "\n")
		}
		return message.String()
	}
	require.Contains(t, next(), "1 device<")
	s.change(func() { s.snapshot.Nodes = nil }) // this page does not show nodes
	s.change(func() { s.snapshot.Instances = nil })
	require.Contains(t, next(), "0 devices<")
	s.change(func() { s.health = cache.Health{Problem: "connection refused"} })
	require.Contains(t, next(), "The API server does not answer")
	s.change(func() { s.health = cache.Health{} })
	require.NotContains(t, next(), "The API server does not answer")
}

// TestViewerIsRefused checks that an open page ends when its viewer is not admitted any more.
func TestViewerIsRefused(t *testing.T) {
	s := load(t)
	var refused atomic.Bool
	server := httptest.NewServer(console.Restricted(func(*http.Request) (console.Viewer, http.Handler) {
		if refused.Load() {
			return console.Viewer{}, http.NotFoundHandler()
		}
		return console.Viewer{Source: s, Name: "jane", CanLogOut: true}, nil
	}))
	defer server.Close()
	get := func(accept string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/devices", nil)
		require.NoError(t, err)
		request.Header.Set("Accept", accept)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		return response
	}
	page := get("text/html")
	text, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Contains(t, string(text), "jane")
	require.Contains(t, string(text), `action="/logout"`)

	open := get("text/event-stream")
	defer open.Body.Close()
	lines := bufio.NewScanner(open.Body)
	require.True(t, lines.Scan())
	refused.Store(true)
	s.change(func() { s.snapshot.Instances = nil })
	var last string
	for lines.Scan() {
		if lines.Text() != "" {
			last += lines.Text() + "\n"
		}
	}
	require.NoError(t, lines.Err(), "the stream ends")
	require.True(t, strings.HasSuffix(last, "event: reload\ndata:\n"), last)
	page = get("text/html")
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusNotFound, page.StatusCode, "the refusal answers")
}

func TestLocal(t *testing.T) {
	handler := console.Local("secret", console.Handler(load(t)))
	call := func(path string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8000"+path, nil)
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/", "/static/console.js", "/?token=", "/?token=wrong"} {
		require.Equal(t, http.StatusForbidden, call(path).Code, path)
	}
	require.Equal(t, http.StatusForbidden, call("/", &http.Cookie{Name: "akri-console-8000", Value: "wrong"}).Code)
	w := call("/?token=secret")
	require.Equal(t, http.StatusSeeOther, w.Code)
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	require.Equal(t, "akri-console-8000", cookies[0].Name)
	require.True(t, cookies[0].HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookies[0].SameSite)
	require.Equal(t, http.StatusOK, call("/", cookies...).Code)
}
