package trouble_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/services/device-plugin-host/internal/trouble"
)

func TestTroubleIsToldOnceItLastsAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		var watched trouble.Trouble
		note := func(err error) []string {
			watched.Note(zap.New(core), "nobody answers", err)
			var said []string
			for _, entry := range logs.TakeAll() {
				said = append(said, entry.Level.String()+": "+entry.Message)
			}
			return said
		}
		failed := errors.New("no")
		require.Empty(t, note(nil))
		require.Empty(t, note(failed))
		<-time.After(15 * time.Second)
		require.Empty(t, note(failed))
		require.Empty(t, note(nil), "it was short")
		<-time.After(15 * time.Second)
		require.Empty(t, note(failed))
		<-time.After(25 * time.Second)
		require.Equal(t, []string{"warn: nobody answers"}, note(failed))
		<-time.After(time.Hour)
		require.Empty(t, note(failed), "once")
		require.Equal(t, []string{"info: no longer: nobody answers"}, note(nil))
		require.Empty(t, note(nil))
	})
}
