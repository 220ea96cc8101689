package pki_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/pki"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newCA(t *testing.T, at time.Time, lifetime time.Duration) *pki.KeyPair {
	t.Helper()
	ca, err := pki.NewCA(at, "ca", lifetime)
	require.NoError(t, err)
	return ca
}

func TestServerCertificate(t *testing.T) {
	ca, other := newCA(t, now, 10*time.Hour), newCA(t, now, 10*time.Hour)
	server, err := pki.NewServer(now, ca, "server", 3*time.Hour, []string{"writer"})
	require.NoError(t, err)
	bundle := slices.Concat(other.CertificatePEM, ca.CertificatePEM)
	require.NoError(t, pki.Verify(server, bundle, "writer", now.Add(-pki.Backdate)))
	require.NoError(t, pki.Verify(server, bundle, "writer", now.Add(3*time.Hour)))
	require.Error(t, pki.Verify(server, bundle, "writer", now.Add(3*time.Hour+time.Second)))
	require.Error(t, pki.Verify(server, bundle, "reader", now))
	require.Error(t, pki.Verify(server, other.CertificatePEM, "writer", now))

	require.Equal(t, now.Add(2*time.Hour), pki.RenewalTime(server.Leaf))
	require.True(t, pki.Fresh(server.Leaf, now.Add(2*time.Hour-time.Second)))
	require.False(t, pki.Fresh(server.Leaf, now.Add(2*time.Hour)))

	late, err := pki.NewServer(now.Add(9*time.Hour), ca, "server", 3*time.Hour, nil)
	require.NoError(t, err)
	require.Equal(t, ca.Leaf.NotAfter, late.Leaf.NotAfter, "the certificate expires with its CA")
}

func TestBundle(t *testing.T) {
	short, long := newCA(t, now, time.Hour), newCA(t, now, 2*time.Hour)
	both := pki.Bundle(now, short.CertificatePEM, []byte("text\n"), long.CertificatePEM, short.CertificatePEM)
	require.Equal(t, slices.Concat(short.CertificatePEM, long.CertificatePEM), both, "without duplicates")
	require.Equal(t, long.CertificatePEM, pki.Bundle(now.Add(time.Hour), both), "without expired certificates")
	require.Empty(t, pki.Bundle(now.Add(2*time.Hour), both))
}
