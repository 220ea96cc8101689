package soap

import (
	"cmp"
	"crypto/md5" //nolint:gosec // required by RFC 7616
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/icholy/digest"
)

// hashes are the supported hash algorithms of HTTP digest authentication, weakest first.
var hashes = []string{"MD5", "SHA-256", "SHA-512-256", "SHA-512"}

func newHash(name string) hash.Hash {
	switch name {
	case "SHA-256":
		return sha256.New()
	case "SHA-512-256":
		return sha512.New512_256()
	case "SHA-512":
		return sha512.New()
	}
	return md5.New() //nolint:gosec // required by RFC 7616
}

// challenge is a challenge without the "-sess" of its algorithm, which the library does not
// support.
type challenge struct {
	*digest.Challenge
	algorithm string // as the server wrote it
	session   bool
	strength  int
}

// authorization returns the Authorization header for the strongest supported challenge among the
// WWW-Authenticate headers.
func authorization(headers []string, options digest.Options) (string, error) {
	var best challenge
	for _, header := range headers {
		if c, ok := parseChallenge(header); ok && (best.Challenge == nil || c.strength > best.strength) {
			best = c
		}
	}
	if best.Challenge == nil {
		return "", errors.New("no supported HTTP digest challenge")
	}
	return best.authorization(options)
}

func parseChallenge(header string) (challenge, bool) {
	parsed, err := digest.ParseChallenge(header)
	if err != nil || parsed.Nonce == "" {
		return challenge{}, false
	}
	c := challenge{Challenge: parsed, algorithm: parsed.Algorithm}
	c.Algorithm, c.session = strings.CutSuffix(cmp.Or(strings.ToUpper(c.Algorithm), "MD5"), "-SESS")
	c.strength = slices.Index(hashes, c.Algorithm)
	// The library compares the values of qop exactly and does not trim them.
	for i, qop := range c.QOP {
		c.QOP[i] = strings.ToLower(strings.TrimSpace(qop))
	}
	c.QOP = slices.DeleteFunc(c.QOP, func(qop string) bool { return qop == "" })
	return c, c.strength >= 0 && digest.CanDigest(c.Challenge)
}

func (c challenge) authorization(options digest.Options) (string, error) {
	if c.session {
		options.Cnonce = rand.Text()
		options.A1 = c.sessionKey(options)
	}
	credentials, err := digest.Digest(c.Challenge, options)
	if err != nil {
		return "", err
	}
	credentials.Algorithm = c.algorithm
	return credentials.String(), nil
}

// sessionKey returns A1 of the "-sess" algorithms (RFC 7616, section 3.4.2).
func (c challenge) sessionKey(options digest.Options) string {
	sum := func(parts ...string) string {
		h := newHash(c.Algorithm)
		_, _ = io.WriteString(h, strings.Join(parts, ":")) // a hash.Hash returns no errors
		return hex.EncodeToString(h.Sum(nil))
	}
	return sum(sum(options.Username, c.Realm, options.Password), c.Nonce, options.Cnonce)
}
