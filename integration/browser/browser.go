// Package browser opens pages in Chromium, for tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
)

// timeout of one action. A machine that also builds images starts Chromium slowly.
const timeout = 60 * time.Second

// Browser is a Chromium with one page.
type Browser struct {
	ctx context.Context
	// origin is the only server that pages may load from.
	origin string
	// expected are parts of errors that are no problems.
	expected []string

	mu       sync.Mutex
	problems []string
}

// Start starts Chromium, which stops at the end of the test. The test fails if the page writes an
// error to the console, throws an exception, or requests a URL outside of the origin. Errors with
// an expected part do not count. Chromium accepts every certificate.
func Start(t *testing.T, origin string, expected ...string) *Browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, // the tests run as root
		chromedp.WSURLReadTimeout(timeout), chromedp.WindowSize(1280, 900), chromedp.IgnoreCertErrors)
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, closePage := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, origin: origin, expected: expected}
	t.Cleanup(func() {
		closePage()
		stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.problems, "problems of the pages")
	})
	require.NoError(t, chromedp.Listen(ctx, b.observe), "start Chromium: apt-get install chromium")
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	return b
}

func (b *Browser) observe(event any) {
	var problem string
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !strings.HasPrefix(url, b.origin+"/") {
			problem = "request to " + url
		}
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError {
			problem = "error: " + event.Entry.Text + " " + event.Entry.URL
		}
	case *runtime.EventExceptionThrown:
		problem = "exception: " + event.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		if event.Type == runtime.ConsoleAPICalledTypeError {
			problem = fmt.Sprintf("console.error: %v", event.Args)
		}
	}
	if problem != "" && !slices.ContainsFunc(b.expected, func(part string) bool { return strings.Contains(problem, part) }) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, problem)
	}
}

// Do runs the steps in the page.
func (b *Browser) Do(t *testing.T, what string, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	run(t, b, what, chromedp.Steps(steps...))
}

func run[T any](t *testing.T, b *Browser, what string, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		show, done := context.WithTimeout(b.ctx, timeout)
		defer done()
		text, _ := chromedp.Run(show, chromedp.Text(chromedp.CSS("body")))
		require.NoError(t, err, "%s; the page is: %s", what, text[:min(len(text), 2000)])
	}
	return result
}

// Await waits until an expression in JavaScript is true, also in a page to which this one leads.
func (b *Browser) Await(t *testing.T, expression string) {
	t.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(timeout), chromedp.WithPollingInterval(50*time.Millisecond))
	run(t, b, expression, func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		for {
			result, err := poll(ctx, target)
			if err == nil || !isReplaced(err) {
				return result, err
			}
		}
	})
}

// isReplaced reports whether another page has replaced the one in which an expression ran.
func isReplaced(err error) bool {
	return strings.Contains(err.Error(), "Cannot find context") || strings.Contains(err.Error(), "Execution context was destroyed") ||
		strings.Contains(err.Error(), "Inspected target navigated")
}

// Number returns the value of an expression in JavaScript.
func (b *Browser) Number(t *testing.T, expression string) float64 {
	t.Helper()
	return run(t, b, expression, chromedp.Evaluate[float64](expression))
}

// Numbers returns the list that is the value of an expression in JavaScript.
func (b *Browser) Numbers(t *testing.T, expression string) []float64 {
	t.Helper()
	return run(t, b, expression, chromedp.Evaluate[[]float64](expression))
}

// Usage is what the page uses.
type Usage struct {
	// Heap are the bytes of objects in JavaScript, after a garbage collection.
	Heap int
	// Listeners is the number of event listeners, after a garbage collection.
	Listeners int
	// Memory are the bytes of memory of the processes of pages. Memory that processes share counts
	// in parts (proc(5), Pss).
	Memory int
}

// Usage returns what the page uses.
func (b *Browser) Usage(t *testing.T) Usage {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	_, err := chromedp.Call(ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	require.NoError(t, err)
	heap, err := chromedp.Call(ctx, runtime.GetHeapUsage, cdp.Empty{})
	require.NoError(t, err)
	counters, err := chromedp.Call(ctx, memory.GetDOMCounters, cdp.Empty{})
	require.NoError(t, err)
	processes, err := chromedp.CallBrowser(ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	require.NoError(t, err)

	usage := Usage{Heap: int(heap.UsedSize), Listeners: int(counters.JsEventListeners)}
	for _, process := range processes.ProcessInfo {
		if process.Type == "renderer" {
			usage.Memory += memoryOf(t, process.ID)
		}
	}
	return usage
}

func memoryOf(t *testing.T, pid int64) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\nPss:")
	require.True(t, found)
	kibibytes, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kibibytes << 10
}

// SetHeader adds a header to all requests of the page.
func (b *Browser) SetHeader(t *testing.T, name, value string) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{name: value}})
	require.NoError(t, err)
}

// Show sets the size of the window and the color scheme (light or dark).
func (b *Browser) Show(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	b.Do(t, "set the window", chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(t, err)
}

// Screenshot writes an image of the window into the directory AKRI_SCREENSHOTS, if that is set.
func (b *Browser) Screenshot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("AKRI_SCREENSHOTS")
	if dir == "" {
		return
	}
	image := run(t, b, "take a screenshot", chromedp.CaptureScreenshot())
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644))
}

// CheckAccessibility runs axe-core on the page.
func (b *Browser) CheckAccessibility(t *testing.T) {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // the first test installs the module
	defer cancel()
	modules, err := node.Modules(ctx, filepath.Join(root, "integration", "browser"))
	require.NoError(t, err)
	axe, err := os.ReadFile(filepath.Join(modules, "node_modules", "axe-core", "axe.min.js"))
	require.NoError(t, err)
	const check = `axe.run().then(result => result.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html).slice(0, 3).join(" ")))`
	run(t, b, "load axe-core", chromedp.Evaluate[chromedp.Void](string(axe)))
	require.Empty(t, run(t, b, "check accessibility", chromedp.Evaluate[[]string](check, chromedp.EvalAwaitPromise)))
}
