package reviews //nolint:testpackage // check and expiry are not exported

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzCheck reads any text as a token, as those of scrapes and logins. The text is not verified
// yet: a JSON Web Token that has not expired, and any other text that can be a token, is left to
// the API server.
func FuzzCheck(f *testing.F) {
	token := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	for _, seed := range []string{
		"", "..", "a.b.c", "opaque", "a b", "\x00", strings.Repeat("a", maxTokenBytes+1), token(`{}`), token(`null`), token(`[`),
		token(`{"exp": 1}`), token(`{"exp": 4000000000}`), token(`{"exp": 4000000000.5}`), token(`{"exp": -1}`), token(`{"exp": "1"}`),
		token(`{"exp": 1e300}`), token(`{"exp": 9.3e18}`), token(`{"exp": 1e400}`), token(`{"EXP": 1, "exp": 4e9}`),
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, token string) {
		expires, refusal := expiry(token), check(token)
		if !expires.IsZero() {
			require.False(t, expires.Before(time.Unix(0, 0)), expires)
			requireExpiry(t, token)
		}
		if len(token) > maxTokenBytes || strings.ContainsAny(token, " \x00\n") || token == "" {
			require.NotNil(t, refusal)
			return
		}
		if refusal == nil {
			require.True(t, expires.IsZero() || !expires.Before(time.Now().Add(-time.Minute)), expires)
		} else if pattern.MatchString(token) {
			require.False(t, expires.IsZero())
			require.False(t, expires.After(time.Now()), expires)
		}
	})
}

// requireExpiry decodes the token again, in another way.
func requireExpiry(t *testing.T, token string) {
	t.Helper()
	parts := strings.Split(token, ".")
	require.Len(t, parts, 3)
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	payload := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &payload))
	positive := false
	for key, value := range payload {
		number, ok := value.(float64)
		positive = positive || strings.EqualFold(key, "exp") && ok && number > 0 // encoding/json ignores the case
	}
	require.True(t, positive, payload)
}
