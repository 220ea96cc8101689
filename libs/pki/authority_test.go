package certificates

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/pki"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	times = Lifetimes{CA: 30 * time.Hour, Server: 3 * time.Hour, Publish: time.Hour}
)

func renewed(t *testing.T, at time.Time, data map[string][]byte) (map[string][]byte, time.Time) {
	t.Helper()
	after, next, err := times.renew(at, data, false)
	require.NoError(t, err)
	return after, next
}

func TestLifetimes(t *testing.T) {
	require.NoError(t, times.Validate())
	require.ErrorContains(t, Lifetimes{CA: 3 * time.Hour, Server: time.Hour, Publish: time.Hour}.Validate(), "at least three times")
	require.ErrorContains(t, Lifetimes{CA: time.Hour}.Validate(), "must be positive")
}

// A client that reads the bundle with a delay of one hour trusts the server at every step of 20
// days, and the bundle never has more than three CAs.
func TestRotationIsNeverVisibleToClients(t *testing.T) {
	data, next := renewed(t, begin, nil)
	mounted, published := data[BundleKey], begin // what the client has, and since when the bundle is published
	bundle := data[BundleKey]
	var server pki.KeyPair
	signers := map[string]bool{}
	for now := begin; now.Before(begin.Add(20 * 24 * time.Hour)); now = next {
		same, _ := renewed(t, now.Add(-time.Second), data)
		require.Equal(t, data, same, "a change before its time")
		if !now.Equal(begin) {
			data, next = renewed(t, now, data)
		}
		require.True(t, next.After(now))
		if now.Sub(published) >= times.Publish {
			mounted = bundle
		}
		if string(bundle) != string(data[BundleKey]) {
			bundle, published = data[BundleKey], now
		}
		if server.Leaf != nil { // the certificate of a replica that has not signed a new one yet
			require.NoError(t, pki.Verify(&server.Certificate, mounted, "writer", earlier(now, server.Leaf.NotAfter)))
		}
		ca, err := pki.Load(data[signerCertKey], data[signerKeyKey])
		require.NoError(t, err)
		server, err = pki.NewServer(now, ca, "server", times.Server, []string{"writer"})
		require.NoError(t, err)
		require.NoError(t, pki.Verify(&server.Certificate, mounted, "writer", now), "the client does not trust the new signer at %s", now)
		signers[string(ca.CertificatePEM)] = true
		require.LessOrEqual(t, len(pki.Bundle(now, data[BundleKey])), 3*len(ca.CertificatePEM)+30)
	}
	require.Greater(t, len(signers), 15)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func TestDamagedCAIsReplaced(t *testing.T) {
	good, _ := renewed(t, begin, nil)
	rotating, _ := renewed(t, begin.Add(21*time.Hour), good)
	require.NotEmpty(t, rotating[nextCertKey])
	for name, damage := range map[string]func(data map[string][]byte){
		"no key":             func(data map[string][]byte) { delete(data, signerKeyKey) },
		"damaged key":        func(data map[string][]byte) { data[signerKeyKey] = []byte("damaged") },
		"damaged CA":         func(data map[string][]byte) { data[signerCertKey] = []byte("damaged") },
		"no bundle":          func(data map[string][]byte) { delete(data, BundleKey) },
		"nothing is correct": func(data map[string][]byte) { clear(data) },
	} {
		data := map[string][]byte{}
		for key, value := range good {
			data[key] = slices.Clone(value)
		}
		damage(data)
		after, next := renewed(t, begin, data)
		ca := load(begin, after[signerCertKey], after[signerKeyKey])
		require.NotNil(t, ca, name)
		require.Contains(t, string(after[BundleKey]), string(ca.CertificatePEM), name)
		require.True(t, next.After(begin), name)
	}
	delete(rotating, signerKeyKey)
	after, _ := renewed(t, begin.Add(21*time.Hour), rotating)
	require.Equal(t, rotating[nextCertKey], after[signerCertKey], "the published CA signs")
	require.Contains(t, string(after[BundleKey]), string(good[signerCertKey]), "servers still have certificates of the previous CA")
}

func TestRotationOnDemand(t *testing.T) {
	first, _ := renewed(t, begin, nil)
	second, next, err := times.renew(begin, first, true)
	require.NoError(t, err)
	require.Equal(t, begin.Add(times.Publish), next)
	require.Equal(t, first[signerCertKey], second[signerCertKey])
	require.Contains(t, string(second[BundleKey]), string(second[nextCertKey]))
	again, _, err := times.renew(begin, second, true)
	require.NoError(t, err)
	require.Equal(t, second, again, "the next CA is published already")
	third, _ := renewed(t, next, second)
	require.Equal(t, second[nextCertKey], third[signerCertKey])
}
