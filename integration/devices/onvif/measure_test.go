package onvif_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices/onvif"
)

// measureVariable is how many cameras to measure with; unset: none.
const measureVariable = "AKRI_ONVIF_CAMERAS"

func TestManyCamerasTakeOneRoundAndFewProbes(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv(measureVariable))
	if err != nil {
		t.Skip(measureVariable + " says with how many cameras")
	}
	all := cameras(count)
	f := fleet(t, onvif.Conditions{Delay: 500 * time.Millisecond}, all...)
	client := handler(t)
	began := time.Now()
	stream := discover(t, client, "", nil)
	requireAll(t, all, stream.next(t))
	t.Logf("%d cameras after %s", count, time.Since(began))
	require.LessOrEqual(t, f.Probes(), 6+1)
}
