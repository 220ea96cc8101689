package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"akri.sh/services/broker-controller/internal/webhook"
)

const day = 24 * time.Hour

var (
	now   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	names = []string{"akri-webhook-configuration.akri.svc", "akri-webhook-configuration.akri.svc.cluster.local"}
)

func renewed(t *testing.T, at time.Time, data map[string][]byte, names []string) (map[string][]byte, bool, time.Time) {
	t.Helper()
	after, changed, next, err := webhook.RenewCertificate(at, data, names)
	require.NoError(t, err)
	return after, changed, next
}

// trusts reports whether a client with the CA bundle of one Secret accepts a server with the
// certificate of another.
func trusts(t *testing.T, client, server map[string][]byte, at time.Time) bool {
	t.Helper()
	pair, err := tls.X509KeyPair(server[corev1.TLSCertKey], server[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(webhook.CABundle(client)))
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: names[0], CurrentTime: at})
	return err == nil
}

func TestCertificateIsRenewedInTime(t *testing.T) {
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
	require.Equal(t, first[webhook.CACertKey], second[webhook.CACertKey], "the CA changed")
	require.NotEqual(t, first[corev1.TLSCertKey], second[corev1.TLSCertKey])
	require.True(t, trusts(t, first, second, next))
}

func TestNewCAKeepsTheOldOneInTheBundle(t *testing.T) {
	first, _, _ := renewed(t, now, nil, names)
	later := now.Add(7 * 365 * day)
	second, changed, _ := renewed(t, later, first, names)
	require.True(t, changed)
	require.True(t, trusts(t, second, second, later))
	require.True(t, trusts(t, second, first, now), "the old certificate must stay valid")
	third, _, _ := renewed(t, later.Add(7*365*day), second, names)
	require.False(t, trusts(t, third, first, now), "the expired CA must leave the bundle")
}

func TestInvalidCertificateIsReplaced(t *testing.T) {
	good, _, _ := renewed(t, now, nil, names)
	other, _, _ := renewed(t, now, nil, names)
	with := func(key string, value []byte) map[string][]byte {
		data := maps.Clone(good)
		data[key] = value
		return data
	}
	for name, data := range map[string]map[string][]byte{
		"garbage":                     with(corev1.TLSCertKey, []byte("garbage")),
		"another key":                 with(corev1.TLSPrivateKeyKey, other[corev1.TLSPrivateKeyKey]),
		"no key":                      with(corev1.TLSPrivateKeyKey, nil),
		"a certificate of another CA": {corev1.TLSCertKey: other[corev1.TLSCertKey], corev1.TLSPrivateKeyKey: other[corev1.TLSPrivateKeyKey], webhook.CACertKey: good[webhook.CACertKey], webhook.CAPrivateKeyKey: good[webhook.CAPrivateKeyKey]},
		"an invalid CA key":           with(webhook.CAPrivateKeyKey, []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")),
	} {
		after, changed, _ := renewed(t, now, data, names)
		require.True(t, changed, name)
		require.True(t, trusts(t, after, after, now), name)
	}
	_, changed, _ := renewed(t, now, good, append(names, "another.name"))
	require.True(t, changed, "a name was added")
}

func TestCABundleOfSelfSignedCertificate(t *testing.T) {
	require.Equal(t, []byte("x"), webhook.CABundle(map[string][]byte{corev1.TLSCertKey: []byte("x")}))
}
