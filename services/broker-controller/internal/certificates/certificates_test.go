package certificates_test

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/services/broker-controller/internal/certificates"
)

const day = 24 * time.Hour

var (
	now   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	names = []string{"akri-webhook-configuration.akri.svc", "akri-webhook-configuration.akri.svc.cluster.local"}
)

func renewed(t *testing.T, at time.Time, data map[string][]byte, names []string) (map[string][]byte, bool, time.Time) {
	t.Helper()
	after, changed, next, err := certificates.Renewed(at, data, names)
	require.NoError(t, err)
	return after, changed, next
}

// trusts says whether a client with the bundle of one Secret believes a server with the certificate
// of another.
func trusts(t *testing.T, client, server map[string][]byte, at time.Time) bool {
	t.Helper()
	pair, err := certificates.Pair(server)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(certificates.Trust(client)))
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: names[0], CurrentTime: at})
	return err == nil
}

func TestACertificateIsMadeOnceAndRenewedInTime(t *testing.T) {
	first, changed, next := renewed(t, now, nil, names)
	require.True(t, changed)
	require.True(t, trusts(t, first, first, now))
	require.WithinRange(t, next, now.Add(59*day), now.Add(60*day))

	same, changed, again := renewed(t, next.Add(-time.Second), first, names)
	require.False(t, changed)
	require.Equal(t, first, same)
	require.Equal(t, next, again)

	second, changed, _ := renewed(t, next, first, names)
	require.True(t, changed)
	require.Equal(t, first[certificates.Authority], second[certificates.Authority], "those who trust the old one trust the new one")
	require.NotEqual(t, first[certificates.Certificate], second[certificates.Certificate])
	require.True(t, trusts(t, first, second, next))
}

func TestANewAuthorityStandsBesideTheOldOne(t *testing.T) {
	first, _, _ := renewed(t, now, nil, names)
	later := now.Add(7 * 365 * day)
	second, changed, _ := renewed(t, later, first, names)
	require.True(t, changed)
	require.True(t, trusts(t, second, second, later))
	require.True(t, trusts(t, second, first, now), "a replica that still serves with the old one is trusted")
	third, _, _ := renewed(t, later.Add(7*365*day), second, names)
	require.False(t, trusts(t, third, first, now), "what has expired is dropped")
}

func TestWhatCannotServeIsReplaced(t *testing.T) {
	good, _, _ := renewed(t, now, nil, names)
	other, _, _ := renewed(t, now, nil, names)
	with := func(key string, value []byte) map[string][]byte {
		data := maps.Clone(good)
		data[key] = value
		return data
	}
	for name, data := range map[string]map[string][]byte{
		"garbage":               with(certificates.Certificate, []byte("garbage")),
		"another's key":         with(certificates.Key, other[certificates.Key]),
		"no key":                with(certificates.Key, nil),
		"another's certificate": {certificates.Certificate: other[certificates.Certificate], certificates.Key: other[certificates.Key], certificates.Authority: good[certificates.Authority], certificates.AuthorityKey: good[certificates.AuthorityKey]},
		"no authority's key":    with(certificates.AuthorityKey, []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")),
	} {
		after, changed, _ := renewed(t, now, data, names)
		require.True(t, changed, name)
		require.True(t, trusts(t, after, after, now), name)
	}
	_, changed, _ := renewed(t, now, good, append(names, "another.name"))
	require.True(t, changed, "a name that it is not for")
}

func TestACertificateWithoutAuthorityIsItsOwn(t *testing.T) {
	require.Equal(t, []byte("x"), certificates.Trust(map[string][]byte{certificates.Certificate: []byte("x")}))
	_, err := certificates.Pair(map[string][]byte{})
	require.Error(t, err)
}
