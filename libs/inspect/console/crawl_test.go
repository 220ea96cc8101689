package console_test

import (
	"cmp"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/libs/inspect/console"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/selector"
)

// fixtures returns the names of all Snapshots in the tests of explanations.
func fixtures(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../explain/testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names
}

// loadFixture is load, with the claims of dra.yaml for the fixtures that are differences to it.
func loadFixture(t *testing.T, name string) *source {
	t.Helper()
	files := []string{name}
	if strings.HasPrefix(name, "dra") {
		files = []string{"dra", name}
	}
	s := load(t, files...)
	s.snapshot.Selectors = selector.New()
	return s
}

var (
	link   = regexp.MustCompile(`<a [^>]*href="([^"]*)"`)
	anchor = regexp.MustCompile(` id="([^"]*)"`)
)

// crawler opens the pages of one source after the other: a handler parses all templates.
type crawler struct {
	handler http.Handler
	source  console.Source
}

func newCrawler() *crawler {
	c := &crawler{}
	c.handler = console.Restricted(func(*http.Request) (console.Viewer, http.Handler) { return console.Viewer{Source: c.source}, nil })
	return c
}

func (c *crawler) get(address string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
	return w
}

// crawl opens all pages to which links lead from the overview, requires that each exists, and
// returns them by their address without the query.
func (c *crawler) crawl(t *testing.T, s console.Source) map[string]string {
	t.Helper()
	c.source = s
	pages, opened, waiting := map[string]string{}, map[string]string{}, []string{"/"}
	open := func(address, from string) string {
		if _, known := opened[address]; !known {
			w := c.get(address)
			require.Equal(t, http.StatusOK, w.Code, "%s, a link of %s: %s", address, from, w.Body)
			opened[address] = w.Body.String()
			waiting = append(waiting, address)
		}
		return opened[address]
	}
	for len(waiting) > 0 {
		from := waiting[0]
		waiting = waiting[1:]
		for _, match := range link.FindAllStringSubmatch(open(from, ""), -1) {
			target, err := url.Parse(html.UnescapeString(match[1]))
			require.NoError(t, err, from)
			if page, is := strings.CutPrefix(target.String(), "https://github.com/akri-mesh/akri/blob/main/"); is {
				requireDocumented(t, page)
				continue
			}
			require.Empty(t, target.Host)
			fragment := target.Fragment
			target.Fragment = ""
			text := open(cmp.Or(target.String(), from), from)
			pages[target.Path] = text
			if fragment != "" {
				require.Contains(t, anchorsOf(text), fragment, "%s of %s", match[1], from)
			}
		}
	}
	return pages
}

// requireDocumented requires that a page of the documentation has the section.
func requireDocumented(t *testing.T, address string) {
	t.Helper()
	page, section, _ := strings.Cut(address, "#")
	require.Contains(t, sections(t, page), section, page)
}

// sections returns the anchors of a page of the documentation.
func sections(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../" + page)
	require.NoError(t, err)
	var anchors []string
	for _, heading := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"))
	}
	return anchors
}

// Each section of the page about reasons is linked from an Event with the reason.
func TestReasonsAreLinked(t *testing.T) {
	text, err := os.ReadFile("../../../docs/troubleshooting.md")
	require.NoError(t, err)
	s := load(t)
	for _, heading := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		s.events = append(s.events, corev1.Event{Reason: heading[1]})
	}
	require.NotEmpty(t, s.events)
	page := get(t, s, "/events").Body.String()
	for _, event := range s.events {
		address := "troubleshooting.md#" + strings.ToLower(event.Reason)
		require.True(t, strings.Contains(page, address+`">`+event.Reason+"</a>"), "the Event with the reason %s has no link to %s", event.Reason, address)
	}
}

func anchorsOf(text string) []string {
	var ids []string
	for _, match := range anchor.FindAllStringSubmatch(text, -1) {
		ids = append(ids, html.UnescapeString(match[1]))
	}
	return ids
}

// TestLinks follows all links of all pages of all fixtures. Each leads to a page, and a page about
// each object is reached.
func TestLinks(t *testing.T) {
	c := newCrawler()
	for _, name := range fixtures(t) {
		s := loadFixture(t, name)
		s.events = append(s.snapshot.Warnings, s.snapshot.Unprepared...)
		pages := c.crawl(t, s)
		for i := range s.snapshot.Configurations {
			require.Contains(t, pages, "/configurations/default/"+s.snapshot.Configurations[i].Name, name)
		}
		for i := range s.snapshot.Instances {
			require.Contains(t, pages, "/devices/"+s.snapshot.Instances[i].Namespace+"/"+s.snapshot.Instances[i].Name, name)
		}
		for i := range s.snapshot.Nodes {
			require.Contains(t, pages, "/nodes/"+s.snapshot.Nodes[i].Name, name)
		}
		for i := range s.snapshot.Pods {
			require.Contains(t, pages, "/pods/"+s.snapshot.Pods[i].Namespace+"/"+s.snapshot.Pods[i].Name, name)
		}
	}
}

// The pages of Configurations, devices and Pods have what the chain waits for and until when, the
// evidence of its causes, such as the reasons of each node for a Pod that is not scheduled, and
// what their remedies interrupt.
func TestWaitsAndEvidenceAreShown(t *testing.T) {
	c := newCrawler()
	waits, ends, evidence, interrupted := 0, 0, 0, 0
	for _, name := range fixtures(t) {
		s := loadFixture(t, name)
		c.source = s
		requireShown := func(path string, e explain.Explanation) {
			text := html.UnescapeString(c.get(path).Body.String())
			for _, link := range e.Links {
				if link.Wait != nil {
					waits++
					require.Contains(t, text, "It waits for "+link.Wait.Awaited+" since ", name+path)
				}
				if link.Wait != nil && !link.Wait.Until.IsZero() {
					ends++
					require.Regexp(t, regexp.QuoteMeta("It waits for "+link.Wait.Awaited+" since ")+"<time .*</time>; at <time .*</time> "+link.Wait.Then, text, name+path)
				}
				for _, cause := range link.Causes {
					for _, fact := range cause.Evidence {
						evidence++
						require.Contains(t, text, "<li>"+fact+"</li>", name+path)
					}
					for _, remedy := range cause.Remedies {
						for _, object := range remedy.Interrupted() {
							interrupted++
							require.Contains(t, text, "This interrupts "+object+".", name+path)
						}
					}
				}
			}
		}
		for i := range s.snapshot.Configurations {
			object := &s.snapshot.Configurations[i]
			requireShown("/configurations/"+object.Namespace+"/"+object.Name, explain.Configuration(&s.snapshot, object.Namespace, object.Name))
		}
		for i := range s.snapshot.Instances {
			object := &s.snapshot.Instances[i]
			requireShown("/devices/"+object.Namespace+"/"+object.Name, explain.Instance(&s.snapshot, object.Namespace, object.Name))
		}
		for i := range s.snapshot.Pods {
			object := &s.snapshot.Pods[i]
			requireShown("/pods/"+object.Namespace+"/"+object.Name, explain.Pod(&s.snapshot, object.Namespace, object.Name))
		}
	}
	require.NotZero(t, waits)
	require.NotZero(t, ends)
	require.NotZero(t, evidence)
	require.NotZero(t, interrupted)
}

// A viewer who may not list a kind gets no link to a page that does not exist.
func TestLinksOfRestrictedViewer(t *testing.T) {
	c := newCrawler()
	for _, name := range fixtures(t) {
		s := loadFixture(t, name)
		s.snapshot.Nodes, s.snapshot.DaemonSets, s.snapshot.Deployments = nil, nil, nil
		s.snapshot.Unreadable, s.snapshot.OneNamespace = []string{"nodes", "daemonsets", "deployments"}, true
		c.crawl(t, s)

		s.snapshot.Pods, s.snapshot.Configurations = nil, nil
		s.snapshot.Unreadable = append(s.snapshot.Unreadable, "pods", "configurations")
		c.crawl(t, s)
	}
}

// TestProblemsAreOnTheOverview requires the verdicts on all that does not work, in all fixtures.
func TestProblemsAreOnTheOverview(t *testing.T) {
	c := newCrawler()
	for _, name := range fixtures(t) {
		s := loadFixture(t, name)
		c.source = s
		text := html.UnescapeString(c.get("/").Body.String())
		before, _, found := strings.Cut(text, "<h2>Numbers</h2>")
		require.True(t, found)
		shown := 0
		for _, verdict := range explain.Verdicts(&s.snapshot) {
			if verdict.State == explain.Works || verdict.State == explain.Skipped {
				continue
			}
			shown++
			title := verdict.Subject.Name + "</a> " + verdict.Summary()
			require.Contains(t, before, title, name)
		}
		require.Equal(t, shown, strings.Count(before, "<li class="), name)
		require.Equal(t, shown == 0, strings.Contains(before, "No problem is known"), name)
	}
}

// The worst problems come first, and those of many devices do not hide others.
func TestManyProblems(t *testing.T) {
	s := load(t, "crash-loop")
	for i := range 1000 {
		instance := *s.snapshot.Instances[0].DeepCopy()
		instance.Name, instance.Spec.Nodes = fmt.Sprintf("camera-%06x", i), nil
		s.snapshot.Instances = append(s.snapshot.Instances, instance)
	}
	begin := time.Now()
	text := get(t, s, "/").Body.String()
	t.Logf("overview of 1,000 devices that do not work: %v, %d bytes", time.Since(begin), len(text))
	require.Less(t, len(text), 100_000)
	require.Contains(t, text, `<a href="/problems?state=Broken&amp;kind=Instance">and 990 more Instance</a>`)
	require.Contains(t, text, "node-a-camera-8120fe-pod</a> CrashLoop: container &#34;main&#34; ends repeatedly")
	require.Less(t, strings.Index(text, `<li class="broken">`), strings.Index(text, `<li class="partly">`))

	text = get(t, s, "/problems?state=Broken&kind=Instance&q=00001").Body.String()
	require.Contains(t, text, "17 of 1003 problems<")
	for _, page := range []string{"/problems", "/devices", "/configurations/default/camera", "/nodes/node-a", "/pods", "/events"} {
		begin := time.Now()
		text := get(t, s, page).Body.String()
		t.Logf("%s with 1,000 devices: %v, %d bytes", page, time.Since(begin), len(text))
		require.Less(t, len(text), 1_500_000, page)
	}
}

// Filters of each list select rows, and the form keeps them.
func TestFilters(t *testing.T) {
	s := load(t, "crash-loop")
	s.events = []corev1.Event{
		{InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node-a"}, Type: "Warning", Reason: "Rebooted", Message: "Node has been rebooted"},
		{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "other", Name: "unrelated"}, Type: "Warning", Reason: "BackOff"},
	}
	for query, want := range map[string]string{
		"/problems?cause=CrashLoop":                  "2 problems<",
		"/problems?cause=CrashLoop&kind=Pod":         "1 of 2 problems<",
		"/configurations?state=Partly&handler=onvif": "1 Configuration<",
		"/configurations?q=nothing":                  "0 of 1 Configuration<",
		"/nodes?q=node-b":                            "1 of 2 nodes<",
		"/pods?state=Broken":                         "1 of 8 Pods<",
		"/pods?namespace=akri-system&node=node-a":    "3 of 8 Pods<",
		"/handlers?node=node-a":                      "1 handler<",
		"/services?kind=DaemonSet":                   "2 of 4 services<",
		"/events?type=Warning&kind=Node":             "1 Event<",
	} {
		text := get(t, s, query).Body.String()
		require.Contains(t, text, want, query)
		address, err := url.Parse(query)
		require.NoError(t, err)
		for name, values := range address.Query() {
			if name != "q" {
				require.Regexp(t, `name="`+name+`".*<option value="`+values[0]+`" selected>`, text, query)
			}
		}
	}
}
