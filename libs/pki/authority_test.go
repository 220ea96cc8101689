package pki_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/pki"
)

var (
	begin  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	issuer = pki.Issuer{
		Name: "server", DNSNames: []string{"writer", "writer.akri.svc"},
		Lifetimes: pki.Lifetimes{CA: 30 * time.Hour, Server: 3 * time.Hour, Publish: time.Hour},
	}
)

func renewed(t *testing.T, at time.Time, current pki.Authority) (pki.Authority, time.Time) {
	t.Helper()
	after, next, err := issuer.RenewCA(at, current, false)
	require.NoError(t, err)
	return after, next
}

func TestLifetimes(t *testing.T) {
	require.NoError(t, issuer.Lifetimes.Validate())
	require.ErrorContains(t, pki.Lifetimes{CA: 3 * time.Hour, Server: time.Hour, Publish: time.Hour}.Validate(), "at least three times")
	require.ErrorContains(t, pki.Lifetimes{CA: time.Hour}.Validate(), "must be positive")
}

// A client that reads the bundle with a delay of one hour trusts the server at every step of 20
// days, and the bundle never has more than three CAs.
func TestRotationIsNeverVisibleToClients(t *testing.T) {
	authority, next := renewed(t, begin, pki.Authority{})
	mounted, published := authority.Bundle, begin // what the client has, and since when the bundle is published
	bundle := authority.Bundle
	var server *pki.KeyPair
	signers := map[string]bool{}
	for now := begin; now.Before(begin.Add(20 * 24 * time.Hour)); now = next {
		same, _ := renewed(t, now.Add(-time.Second), authority)
		require.True(t, authority.Equal(same), "a change before its time")
		if !now.Equal(begin) {
			authority, next = renewed(t, now, authority)
		}
		require.True(t, next.After(now))
		if now.Sub(published) >= issuer.Lifetimes.Publish {
			mounted = bundle
		}
		if string(bundle) != string(authority.Bundle) {
			bundle, published = authority.Bundle, now
		}
		if server != nil { // the certificate of a replica that has not signed a new one yet
			require.NoError(t, pki.Verify(server, mounted, "writer", earlier(now, server.Leaf.NotAfter)))
		}
		var err error
		server, err = issuer.RenewServer(now, nil, authority.Signer)
		require.NoError(t, err)
		require.NoError(t, pki.Verify(server, mounted, "writer", now), "the client does not trust the new signer at %s", now)
		signers[string(authority.Signer.CertificatePEM)] = true
		require.LessOrEqual(t, len(pki.Bundle(now, authority.Bundle)), 3*len(authority.Signer.CertificatePEM)+30)
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
	good, _ := renewed(t, begin, pki.Authority{})
	rotating, _ := renewed(t, begin.Add(21*time.Hour), good)
	require.NotNil(t, rotating.Next)
	certificate, key := good.Signer.CertificatePEM, good.Signer.KeyPEM
	load := func(certificate, key []byte) *pki.KeyPair {
		pair, _ := pki.Load(certificate, key)
		return pair
	}
	for name, damaged := range map[string]pki.Authority{
		"no key":             {Signer: load(certificate, nil), Bundle: good.Bundle},
		"damaged key":        {Signer: load(certificate, []byte("damaged")), Bundle: good.Bundle},
		"damaged CA":         {Signer: load([]byte("damaged"), key), Bundle: good.Bundle},
		"no bundle":          {Signer: load(certificate, key)},
		"a damaged bundle":   {Signer: load(certificate, key), Bundle: []byte("damaged")},
		"nothing is correct": {},
	} {
		after, next := renewed(t, begin, damaged)
		require.NotNil(t, after.Signer, name)
		require.Contains(t, string(after.Bundle), string(after.Signer.CertificatePEM), name)
		require.True(t, next.After(begin), name)
	}
	expired, _ := renewed(t, begin.Add(31*time.Hour), good)
	require.NotEqual(t, good.Signer, expired.Signer)
	after, _ := renewed(t, begin.Add(21*time.Hour), pki.Authority{Next: rotating.Next, Bundle: rotating.Bundle})
	require.Equal(t, rotating.Next, after.Signer, "the published CA signs")
	require.Contains(t, string(after.Bundle), string(good.Signer.CertificatePEM), "servers still have certificates of the previous CA")
}

func TestRotationOnDemand(t *testing.T) {
	first, _ := renewed(t, begin, pki.Authority{})
	second, next, err := issuer.RenewCA(begin, first, true)
	require.NoError(t, err)
	require.Equal(t, begin.Add(issuer.Lifetimes.Publish), next)
	require.Equal(t, first.Signer, second.Signer)
	require.Contains(t, string(second.Bundle), string(second.Next.CertificatePEM))
	again, _, err := issuer.RenewCA(begin, second, true)
	require.NoError(t, err)
	require.True(t, second.Equal(again), "the next CA is published already")
	third, _ := renewed(t, next, second)
	require.Equal(t, second.Next, third.Signer)
}

func TestCAThatIsNotPublishedSignsAtOnce(t *testing.T) {
	issuer := issuer
	issuer.Lifetimes.Publish = 0
	first, _, err := issuer.RenewCA(begin, pki.Authority{}, false)
	require.NoError(t, err)
	renewal := pki.RenewalTime(first.Signer.Leaf)
	second, next, err := issuer.RenewCA(renewal, first, false)
	require.NoError(t, err)
	require.NotEqual(t, first.Signer, second.Signer)
	require.Nil(t, second.Next)
	require.Equal(t, slices.Concat(second.Signer.CertificatePEM, first.Signer.CertificatePEM), second.Bundle)
	require.Equal(t, renewal.Add(issuer.Lifetimes.Server), next)
	third, _, err := issuer.RenewCA(next, second, false)
	require.NoError(t, err)
	require.Equal(t, second.Signer.CertificatePEM, third.Bundle, "no server has a certificate of the first CA")
}

func TestServerIsRenewed(t *testing.T) {
	authority, _ := renewed(t, begin, pki.Authority{})
	server, err := issuer.RenewServer(begin, nil, authority.Signer)
	require.NoError(t, err)
	other := newCA(t, begin, 30*time.Hour)
	moreNames := issuer
	moreNames.DNSNames = append(slices.Clone(issuer.DNSNames), "another.name")
	for name, c := range map[string]struct {
		issuer pki.Issuer
		at     time.Time
		signer *pki.KeyPair
		want   bool
	}{
		"fresh":                  {issuer, begin.Add(2*time.Hour - time.Second), authority.Signer, false},
		"two thirds of its time": {issuer, begin.Add(2 * time.Hour), authority.Signer, true},
		"another CA":             {issuer, begin, other, true},
		"another name":           {moreNames, begin, authority.Signer, true},
	} {
		after, err := c.issuer.RenewServer(c.at, server, c.signer)
		require.NoError(t, err)
		require.Equal(t, c.want, after != server, name)
		require.NoError(t, pki.Verify(after, c.signer.CertificatePEM, "writer", c.at), name)
	}
}

// A client whose clock is behind, at most until the CA began, accepts each server certificate.
// When the clock of the server is set, forward or back, the next renewal gives a certificate that
// is valid then, for no longer than its lifetime. It is at most a minute away.
func TestClocksThatAreWrong(t *testing.T) {
	for range 30 {
		now, authority := begin, pki.Authority{}
		var server *pki.KeyPair
		for range 50 {
			renewed, next, err := issuer.RenewCA(now, authority, false)
			require.NoError(t, err)
			authority = renewed
			server, err = issuer.RenewServer(now, server, authority.Signer)
			require.NoError(t, err)

			begins, ends := authority.Signer.Leaf.NotBefore, server.Leaf.NotAfter
			require.NoError(t, pki.Verify(server, authority.Bundle, "writer", now))
			for _, client := range []time.Time{begins, ends, begins.Add(rand.N(ends.Sub(begins)))} {
				require.NoError(t, pki.Verify(server, authority.Bundle, "writer", client))
			}
			require.LessOrEqual(t, ends.Sub(now), issuer.Lifetimes.Server)
			renewal := issuer.ServerRenewal(server, authority.Signer)
			require.True(t, renewal.After(now) && next.After(now), "the renewal is repeated at once")
			wait := pki.Wait(now, next, renewal)
			require.LessOrEqual(t, wait, time.Minute)

			switch rand.IntN(4) {
			case 0:
				now = now.Add(rand.N(100*issuer.Lifetimes.CA) / 10)
			case 1:
				now = now.Add(-rand.N(100*issuer.Lifetimes.CA) / 10)
			case 2:
				now = earlier(next, renewal)
			default:
				now = now.Add(wait)
			}
		}
	}
}
