package failurelog_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/libs/failurelog"
)

func TestRecordLogsLastingFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		failures := failurelog.New(zap.New(core), "connecting failed", "connected again")
		record := func(err error) []string {
			failures.Record(err)
			var messages []string
			for _, entry := range logs.TakeAll() {
				messages = append(messages, entry.Level.String()+": "+entry.Message)
			}
			return messages
		}
		failed := errors.New("refused")
		require.Empty(t, record(nil))
		require.Empty(t, record(failed))
		<-time.After(15 * time.Second)
		require.Empty(t, record(failed))
		require.Empty(t, record(nil), "a short failure is not logged")
		<-time.After(15 * time.Second)
		require.Empty(t, record(failed))
		<-time.After(25 * time.Second)
		require.Equal(t, []string{"warn: connecting failed"}, record(failed))
		<-time.After(time.Hour)
		require.Empty(t, record(failed), "a lasting failure is logged once")
		require.Equal(t, []string{"info: connected again"}, record(nil))
		require.Empty(t, record(nil))
	})
}
