package e2e_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/integration/browser"
)

// consoleDevice checks in a browser that a device appears without a reload, and goes again.
func consoleDevice(t *testing.T) {
	times, err := strconv.Atoi(cmp.Or(os.Getenv("AKRI_E2E_SEEN"), "1"))
	require.NoError(t, err)
	address, origin, stop := startConsole(t)

	t.Run("page", func(t *testing.T) {
		b := browser.Start(t, origin)
		b.Do(t, "open", chromedp.Navigate(address), chromedp.Navigate(origin+"/devices?q=e2e-zram"))
		b.Await(t, "source.readyState === EventSource.OPEN && document.querySelectorAll('tbody tr').length === 0")
		b.Do(t, "mark", chromedp.Evaluate[chromedp.Void]("window.notReloaded = true; 0"))
		applyZram(t, zramConfiguration)
		var seen []time.Duration
		for range times {
			seen = append(seen, seeDevice(t, b))
		}
		slices.Sort(seen)
		t.Logf("rows appear after a device is plugged in: median %s, max %s, n %d", seen[times/2], seen[times-1], times)
		b.Do(t, "open", chromedp.Navigate(origin+"/configurations/default/e2e-zram"))
		b.Await(t, "document.body.innerText.includes('NothingMatched')")
		awaitBrokers(t, "default", "e2e-zram", 0)
	})
	stop()
}

// startConsole runs `kubectl akri console` until stop is called. The address has the token.
func startConsole(t *testing.T) (address, origin string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	t.Cleanup(cancel)
	command := akriCommand(ctx, "console")
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	address = strings.Fields(line)[1]
	origin, _, _ = strings.Cut(address, "/?token=")
	require.Contains(t, origin, "http://127.0.0.1:")
	return address, origin, func() {
		require.NoError(t, command.Process.Signal(os.Interrupt))
		require.NoError(t, command.Wait())
	}
}

// seeDevice plugs in a device, awaits its rows, and unplugs it. It returns the time from before the
// kernel creates the device until the last row is in the page.
func seeDevice(t *testing.T, b *browser.Browser) time.Duration {
	t.Helper()
	b.Do(t, "observe rows", chromedp.Evaluate[chromedp.Void](`window.rows = {};
		window.observer?.disconnect();
		window.observer = new MutationObserver(() => {
			for (const row of document.querySelectorAll('tbody tr')) window.rows[row.id] ??= Date.now();
		});
		window.observer.observe(document.getElementById('live'), {childList: true, subtree: true}); 0`))
	plugged := time.Now()
	zram := plug(t, "")
	var last float64
	for _, instance := range zramInstances(zram) {
		b.Await(t, fmt.Sprintf("window.rows['device-default-%s'] && window.notReloaded", instance))
		last = max(last, b.Number(t, fmt.Sprintf("window.rows['device-default-%s']", instance)))
	}
	unplug(t, zram)
	b.Await(t, "document.querySelectorAll('tbody tr').length === 0 && window.notReloaded")
	return time.Duration(last)*time.Millisecond - time.Duration(plugged.UnixMilli())*time.Millisecond
}

// page is a page of the console, and what it shows.
type page struct {
	path  string
	parts []string
	// matches is a regular expression.
	matches string
}

// check returns an error if the page does not show it.
func (p page) check(text string) error {
	for _, part := range p.parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no %q in %s", part, text)
		}
	}
	if !regexp.MustCompile(p.matches).MatchString(text) {
		return fmt.Errorf("nothing matches %s in %s", p.matches, text)
	}
	return nil
}

// openConsole runs `kubectl akri console` and returns a function that waits until a page shows its
// parts.
func openConsole(t *testing.T) (awaitPage func(page), stop func()) {
	t.Helper()
	address, origin, stop := startConsole(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Timeout: timeout}
	load := func(ctx context.Context, url string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		return html.UnescapeString(string(text)), err
	}
	_, err = load(t.Context(), address) // sets the cookie
	require.NoError(t, err)
	return func(p page) {
		t.Helper()
		await(t, "the page "+p.path, func(ctx context.Context) error {
			text, err := load(ctx, origin+p.path)
			if err != nil {
				return err
			}
			return p.check(text)
		})
	}, stop
}

// awaitPages waits until the pages of `kubectl akri console` show their parts.
func awaitPages(t *testing.T, pages ...page) {
	t.Helper()
	awaitPage, stop := openConsole(t)
	for _, p := range pages {
		awaitPage(p)
	}
	stop()
}
