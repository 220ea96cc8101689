package broadcast_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/broadcast"
)

func TestValueWakesEveryReader(t *testing.T) {
	var value broadcast.Value[int]
	first, changed := value.Get()
	require.Zero(t, first)
	_, alsoChanged := value.Get()

	value.Set(1)
	value.Set(2)
	<-changed
	<-alsoChanged
	latest, changed := value.Get()
	require.Equal(t, 2, latest)
	select {
	case <-changed:
		require.FailNow(t, "woken without a newer value")
	default:
	}
}

func TestSignalCountsOnce(t *testing.T) {
	signal := broadcast.NewSignal()
	signal.Notify()
	signal.Notify()
	<-signal
	require.Empty(t, signal)
}
