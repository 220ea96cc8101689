package reviews

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

const (
	// maxTokenBytes is more than the size of a token with many groups.
	maxTokenBytes = 16 << 10
	// maxExpiry is the end of the year 9999, the last that RFC 3339 can express.
	maxExpiry = 253402300799
)

// pattern of tokens in the header Authorization (RFC 6750).
var pattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// check returns why the API server would refuse a token, without asking it.
func check(token string) *Refusal {
	if len(token) > maxTokenBytes || !pattern.MatchString(token) {
		return &Refusal{"this is not a token"}
	}
	if expires := expiry(token); !expires.IsZero() && time.Now().After(expires) {
		return expired(expires)
	}
	return nil
}

func expired(at time.Time) *Refusal {
	return &Refusal{"the token expired at " + at.UTC().Format(time.RFC3339)}
}

// expiry returns when a JSON Web Token expires, or zero for other tokens. It does not verify the
// signature.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(min(claims.Expires, maxExpiry)), 0)
}
