package e2e_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()
	command := akriCommand(ctx, "console")
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	address := strings.Fields(line)[1]
	origin, _, _ := strings.Cut(address, "/?token=")
	require.Contains(t, origin, "http://127.0.0.1:")

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
	require.NoError(t, command.Process.Signal(os.Interrupt))
	require.NoError(t, command.Wait())
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
