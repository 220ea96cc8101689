package auth

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// maxTokenBytes is more than the size of a token with all fields of Kubernetes.
const maxTokenBytes = 8 << 10

// parse returns when a token expires. It refuses tokens that the API server would refuse too,
// without asking it. It does not verify the signature: a token that it accepts can still be forged.
func (a *Authenticator) parse(token string, now time.Time) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxTokenBytes {
		return time.Time{}, refuse(ReasonToken, "token is not a service account token")
	}
	var payload struct {
		Audiences audiences `json:"aud"`
		Expires   float64   `json:"exp"`
		Subject   string    `json:"sub"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &payload)
	}
	expires := time.Unix(int64(payload.Expires), 0)
	switch {
	case err != nil:
		return time.Time{}, refuse(ReasonToken, "token is not a service account token: %v", err)
	case !slices.Contains(payload.Audiences, Audience):
		return time.Time{}, refuse(ReasonAudience, "token has the audiences %q: must be %s", payload.Audiences, Audience)
	case now.After(expires):
		return time.Time{}, refuse(ReasonExpired, "token expired at %s", expires.UTC().Format(time.RFC3339))
	case !strings.HasPrefix(payload.Subject, accountsName+a.Namespace+":"):
		return time.Time{}, refuse(ReasonAccount, "%q is not a service account of namespace %q", payload.Subject, a.Namespace)
	}
	return expires, nil
}

// audiences is a string or a list of strings.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}
