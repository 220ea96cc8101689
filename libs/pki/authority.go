package pki

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Lifetimes of the certificates of an Issuer.
type Lifetimes struct {
	CA      time.Duration `help:"Lifetime of the CA. After two thirds of it the next CA is published." default:"8760h"`
	Server  time.Duration `help:"Lifetime of server certificates. They are renewed after two thirds of it." default:"24h"`
	Publish time.Duration `help:"Time for which a new CA is published before it signs. The kubelet updates mounted ConfigMaps within about two minutes." default:"1h"`
}

// Validate checks that a CA is valid for longer than its successor needs to replace it.
func (l Lifetimes) Validate() error {
	if l.CA <= 0 || l.Server <= 0 || l.Publish < 0 {
		return errors.New("lifetimes of certificates must be positive")
	}
	if l.CA/3 < l.Publish+l.Server {
		return fmt.Errorf("CA lifetime %s: must be at least three times the sum of the publish time %s and the server lifetime %s",
			l.CA, l.Publish, l.Server)
	}
	return nil
}

// Issuer issues and renews the CA and the server certificates of a service.
type Issuer struct {
	// Name is the common name of server certificates. That of CAs has the suffix " authority".
	Name string
	// DNSNames are the names of the server.
	DNSNames  []string
	Lifetimes Lifetimes
}

// Authority is what an Issuer stores of its CA. The zero Authority has no CA.
type Authority struct {
	// Signer is the CA that signs now. Next is the CA that signs next, if there is one. Clients
	// already trust it.
	Signer, Next *KeyPair
	// Bundle has the certificates of all CAs that clients must trust.
	Bundle []byte
}

// Equal reports whether two Authorities have the same CAs and the same bundle.
func (a Authority) Equal(b Authority) bool {
	return a.Signer == b.Signer && a.Next == b.Next && bytes.Equal(a.Bundle, b.Bundle)
}

// RenewCA returns the Authority that should be stored, and the time of the next change. It is equal
// to the current one if nothing changes.
//
// A new CA is first published in the bundle and signs later, when clients trust it. The previous CA
// stays in the bundle until all certificates that it has signed have expired. A CA that is missing
// or not valid now is replaced at once. With rotate the next CA is published now.
func (i Issuer) RenewCA(now time.Time, current Authority, rotate bool) (renewed Authority, next time.Time, err error) {
	signer, upcoming := valid(current.Signer, now), valid(current.Next, now)
	if signer == nil || i.signs(upcoming, now) {
		signer, upcoming = upcoming, nil
	}
	if signer == nil {
		if signer, err = i.newCA(now); err != nil {
			return Authority{}, next, err
		}
	}
	if upcoming == nil && (rotate || !Fresh(signer.Leaf, now)) {
		if upcoming, err = i.newCA(now); err != nil {
			return Authority{}, next, err
		}
	}
	if i.signs(upcoming, now) { // it is not published first
		signer, upcoming = upcoming, nil
	}

	trusted, next := [][]byte{signer.CertificatePEM}, RenewalTime(signer.Leaf)
	if upcoming != nil {
		trusted, next = append(trusted, upcoming.CertificatePEM), i.signsFrom(upcoming)
	}
	if expired := i.signsFrom(signer).Add(i.Lifetimes.Server); now.Before(expired) {
		trusted = append(trusted, current.Bundle)
		next = slices.MinFunc([]time.Time{next, expired}, time.Time.Compare)
	}
	return Authority{signer, upcoming, Bundle(now, trusted...)}, next, nil
}

// RenewServer returns the server certificate to use: the current one, or a new one if there is none
// or if it is to be renewed, or is not one of the signer for all names.
func (i Issuer) RenewServer(now time.Time, current, signer *KeyPair) (*KeyPair, error) {
	lacks := func(name string) bool { return current.Leaf.VerifyHostname(name) != nil }
	if current != nil && i.keeps(now, current, signer) && Verify(current, signer.CertificatePEM, "", now) == nil &&
		!slices.ContainsFunc(i.DNSNames, lacks) {
		return current, nil
	}
	return NewServer(now, signer, i.Name, i.Lifetimes.Server, i.DNSNames)
}

// keeps reports whether a server certificate need not be renewed. One that is valid for longer than
// its lifetime was created while the clock was ahead.
func (i Issuer) keeps(now time.Time, server, signer *KeyPair) bool {
	return now.Before(i.ServerRenewal(server, signer)) && server.Leaf.NotAfter.Sub(now) <= i.Lifetimes.Server
}

// ServerRenewal returns when to renew a server certificate: after two thirds of its lifetime. If
// the signer expires first, another certificate of it would not be valid for longer.
func (i Issuer) ServerRenewal(server, signer *KeyPair) time.Time {
	if server.Leaf.NotAfter.Equal(signer.Leaf.NotAfter) {
		return server.Leaf.NotAfter
	}
	return server.Leaf.NotAfter.Add(-i.Lifetimes.Server / 3)
}

// valid returns nil if a CA is missing or not valid now.
func valid(ca *KeyPair, now time.Time) *KeyPair {
	if ca == nil || now.Before(ca.Leaf.NotBefore) || !now.Before(ca.Leaf.NotAfter) {
		return nil
	}
	return ca
}

func (i Issuer) newCA(now time.Time) (*KeyPair, error) {
	return NewCA(now, i.Name+" authority", i.Lifetimes.CA)
}

// signsFrom returns when a CA starts to sign at the latest.
func (i Issuer) signsFrom(ca *KeyPair) time.Time { return Created(ca.Leaf).Add(i.Lifetimes.Publish) }

// signs reports whether an upcoming CA has been published for long enough.
func (i Issuer) signs(upcoming *KeyPair, now time.Time) bool {
	return upcoming != nil && !now.Before(i.signsFrom(upcoming))
}
