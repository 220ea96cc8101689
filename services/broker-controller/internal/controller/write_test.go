package controller

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyRefused(t *testing.T) {
	refused, timeout := refusedError{message: "quota"}, errors.New("timeout")
	require.True(t, onlyRefused(refused))
	require.True(t, onlyRefused(errors.Join(errors.Join(refused, refused), nil)))
	require.False(t, onlyRefused(timeout))
	require.False(t, onlyRefused(errors.Join(errors.Join(refused, timeout), nil)))
}
