package soap

import (
	"crypto/md5" //nolint:gosec // what cameras ask for (RFC 7616)
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// Challenge is a server's demand for HTTP digest authentication (RFC 7616).
type Challenge struct {
	Realm, Nonce, Opaque, Algorithm string
	// HasQOP tells whether the server knows quality of protection "auth".
	HasQOP bool
}

// ParseChallenge returns the strongest challenge among the values of WWW-Authenticate that can be met.
func ParseChallenge(headers []string) (Challenge, error) {
	best, found := Challenge{}, false
	for _, header := range headers {
		challenge, err := parseChallenge(header)
		if err == nil && (!found || challenge.strength() > best.strength()) {
			best, found = challenge, true
		}
	}
	if !found {
		return Challenge{}, errors.New("no HTTP digest challenge that can be met")
	}
	return best, nil
}

func parseChallenge(header string) (Challenge, error) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "digest") {
		return Challenge{}, fmt.Errorf("scheme %q", scheme)
	}
	parameters := parseParameters(rest)
	c := Challenge{
		Realm: parameters["realm"], Nonce: parameters["nonce"], Opaque: parameters["opaque"],
		Algorithm: strings.ToUpper(parameters["algorithm"]),
	}
	for qop := range strings.SplitSeq(parameters["qop"], ",") {
		c.HasQOP = c.HasQOP || strings.EqualFold(strings.TrimSpace(qop), "auth")
	}
	switch {
	case c.Nonce == "":
		return Challenge{}, errors.New("no nonce")
	case parameters["qop"] != "" && !c.HasQOP:
		return Challenge{}, fmt.Errorf("quality of protection %q", parameters["qop"])
	case c.strength() < 0:
		return Challenge{}, fmt.Errorf("algorithm %q", c.Algorithm)
	}
	return c, nil
}

// strength is below zero for an algorithm that is not known.
func (c Challenge) strength() int {
	switch strings.TrimSuffix(c.Algorithm, "-SESS") {
	case "", "MD5":
		return 0
	case "SHA-256":
		return 1
	}
	return -1
}

// parseParameters reads `name=token, name="quoted \"string\""`; what it cannot read it leaves out.
func parseParameters(text string) map[string]string {
	parameters := map[string]string{}
	for text != "" {
		name, rest, found := strings.Cut(text, "=")
		if !found {
			break
		}
		var value string
		value, text = parseValue(strings.TrimLeft(rest, " \t"))
		parameters[strings.ToLower(strings.Trim(name, " \t,"))] = value
	}
	return parameters
}

func parseValue(text string) (value, rest string) {
	if !strings.HasPrefix(text, `"`) {
		value, rest, _ = strings.Cut(text, ",")
		return strings.TrimSpace(value), rest
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:]
		case '\\':
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), ""
}

// Answer returns the value of Authorization for one request of the method to the path.
func (c Challenge) Answer(credentials Credentials, method, path string) string {
	return c.answer(credentials, method, path, rand.Text())
}

func (c Challenge) answer(credentials Credentials, method, path, cnonce string) string {
	const count = "00000001"
	secret := c.sum(credentials.Username, c.Realm, credentials.Password)
	if strings.HasSuffix(c.Algorithm, "-SESS") {
		secret = c.sum(secret, c.Nonce, cnonce)
	}
	request := c.sum(method, path)
	response := c.sum(secret, c.Nonce, request)
	if c.HasQOP {
		response = c.sum(secret, c.Nonce, count, cnonce, "auth", request)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `Digest username=%s, realm=%s, nonce=%s, uri=%s, response="%s"`,
		quote(credentials.Username), quote(c.Realm), quote(c.Nonce), quote(path), response)
	if c.Algorithm != "" {
		fmt.Fprintf(&b, ", algorithm=%s", c.Algorithm)
	}
	if c.HasQOP || strings.HasSuffix(c.Algorithm, "-SESS") {
		fmt.Fprintf(&b, `, cnonce="%s"`, cnonce)
	}
	if c.HasQOP {
		fmt.Fprintf(&b, ", qop=auth, nc=%s", count)
	}
	if c.Opaque != "" {
		fmt.Fprintf(&b, ", opaque=%s", quote(c.Opaque))
	}
	return b.String()
}

func quote(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1 // a header must stay one line
		}
		return r
	}, text)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func (c Challenge) sum(parts ...string) string {
	h := md5.New() //nolint:gosec // what cameras ask for
	if c.strength() > 0 {
		h = sha256.New()
	}
	h.Write([]byte(strings.Join(parts, ":")))
	return fmt.Sprintf("%x", h.Sum(nil))
}
