package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestUpdateEndsWithItsInstance(t *testing.T) {
	r := newRollout(time.Minute, newSightings())
	configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{UID: "c"}}
	require.True(t, r.tryStart(newCache(t), newInstance("i"), configuration, time.Now()))
	r.remove("default/echo-a19705")
	require.Len(t, r.updates, 1)
	r.remove("default/echo-8120fe")
	require.Empty(t, r.updates)
}
