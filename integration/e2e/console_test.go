package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/integration/browser"
)

// consoleDevice checks in a browser that a device appears without a reload, and goes again.
func consoleDevice(t *testing.T) {
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
		apply(t, zramConfiguration)
		zram := plug(t, "")
		for _, instance := range zramInstances(zram) {
			b.Await(t, fmt.Sprintf("document.getElementById('device-default-%s') && window.notReloaded", instance))
		}
		unplug(t, zram)
		b.Await(t, "document.querySelectorAll('tbody tr').length === 0 && window.notReloaded")
		b.Do(t, "open", chromedp.Navigate(origin+"/configurations/default/e2e-zram"))
		b.Await(t, "document.body.innerText.includes('NothingMatched')")
		awaitBrokers(t, "default", "e2e-zram", 0)
	})
	require.NoError(t, command.Process.Signal(os.Interrupt))
	require.NoError(t, command.Wait())
}
