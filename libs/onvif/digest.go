package onvif

import (
	"cmp"
	"crypto/md5" //nolint:gosec // required by RFC 7616
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/icholy/digest"
)

// hashes are the supported hash algorithms of HTTP digest authentication, weakest first.
var hashes = []string{"MD5", "SHA-256"}

// parameter matches a parameter of a challenge. Its value is a quoted string or not quoted.
var parameter = regexp.MustCompile(`(?:^|,)[ \t]*([A-Za-z-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^",]*))`)

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
	parsed, err := digest.ParseChallenge(normalize(header))
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

// normalize returns the challenge in the only notation that the library parses. RFC 9110 also
// allows names in upper case, tabs and empty elements of a list. Some cameras do not quote values.
func normalize(header string) string {
	space := strings.IndexAny(header, " \t")
	if space < 0 {
		return header
	}
	var parameters []string
	for _, match := range parameter.FindAllStringSubmatch(header[space:], -1) {
		name, quoted, unquoted := strings.ToLower(match[1]), match[2], strings.TrimSpace(match[3])
		parameters = append(parameters, fmt.Sprintf(`%s="%s"`, name, quoted+unquoted))
	}
	return header[:space] + " " + strings.Join(parameters, ", ")
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
	header := credentials.String()
	if c.session && credentials.QOP == "" {
		// The library omits it, and the server needs it for the session key.
		header += fmt.Sprintf(", cnonce=%q", options.Cnonce)
	}
	return header, nil
}

// sessionKey returns A1 of the "-sess" algorithms (RFC 7616, section 3.4.2).
func (c challenge) sessionKey(options digest.Options) string {
	sum := func(parts ...string) string {
		text := []byte(strings.Join(parts, ":"))
		if c.Algorithm == "SHA-256" {
			return fmt.Sprintf("%x", sha256.Sum256(text))
		}
		return fmt.Sprintf("%x", md5.Sum(text)) //nolint:gosec // required by RFC 7616
	}
	return sum(sum(options.Username, c.Realm, options.Password), c.Nonce, options.Cnonce)
}
