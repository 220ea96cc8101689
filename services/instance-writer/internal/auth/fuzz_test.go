package auth //nolint:testpackage // parse and identityOf are not exported

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// FuzzToken parses any text as a token, and any answer to its review. A token is accepted only if
// it has three parts, and if its payload is that of a service account of the namespace, for the
// audience, that has not expired. An identity has an account of the namespace and one node.
func FuzzToken(f *testing.F) {
	const namespace, other = "akri", "kube-system"
	token := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	const valid = `{"aud": ["akri-instance-writer"], "exp": 2000000000, "sub": "system:serviceaccount:akri:akri-agent"}`
	for _, seed := range []string{
		token(valid), token(`{}`), token(`null`), token(`[`), "", "..", "a.b.c", strings.Repeat(".", 3), token(valid) + ".x",
		token(`{"aud": "akri-instance-writer", "exp": 1e400, "sub": "system:serviceaccount:akri:x"}`),
		token(`{"aud": "akri-instance-writer", "exp": 1e300, "sub": "system:serviceaccount:akri:x"}`),
		token(`{"aud": "akri-instance-writer", "exp": -1e300, "sub": "system:serviceaccount:akri:x"}`),
		token(`{"AUD": {"a": 1}, "exp": "1", "sub": 1}`),
	} {
		f.Add(seed, "system:serviceaccount:akri:akri-agent", "node-1", true)
		f.Add(seed, "system:serviceaccount:"+other+":akri-agent", "\n", true)
		f.Add(seed, "system:serviceaccount:akri:", "", false)
	}
	now := time.Unix(1_700_000_000, 0)
	a := &Authenticator{Options: Options{Namespace: namespace}}
	f.Fuzz(func(t *testing.T, token, user, node string, authenticated bool) {
		expires, err := a.parse(token, now)
		if err != nil {
			requireRefusal(t, err)
			require.Zero(t, expires)
		} else {
			requireValid(t, token, namespace, now, expires)
		}

		status := authenticationv1.TokenReviewStatus{Authenticated: authenticated, Audiences: []string{Audience}}
		status.User.Username = user
		status.User.Extra = map[string]authenticationv1.ExtraValue{nodeNameKey: strings.Split(node, ",")}
		identity, err := identityOf(status, namespace)
		if err != nil {
			requireRefusal(t, err)
			return
		}
		require.True(t, authenticated)
		require.Equal(t, "system:serviceaccount:"+namespace+":"+identity.ServiceAccount, user)
		require.NotEmpty(t, identity.ServiceAccount)
		require.NotEmpty(t, identity.Node)
		require.Equal(t, node, identity.Node, "a token of several nodes has none")
	})
}

func requireRefusal(t *testing.T, err error) {
	t.Helper()
	var refusal *Refusal
	require.True(t, errors.As(err, &refusal), "%v", err)
	require.Contains(t, reasons, refusal.Reason)
}

// requireValid decodes the token again, in another way.
func requireValid(t *testing.T, token, namespace string, now, expires time.Time) {
	t.Helper()
	require.LessOrEqual(t, len(token), maxTokenBytes)
	require.Equal(t, 2, strings.Count(token, "."))
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	require.NoError(t, err)
	var payload map[string]any
	require.NoError(t, json.Unmarshal(text, &payload))

	// encoding/json ignores the case of names. The API server verifies the token afterwards.
	value := func(name string) (found []any) {
		for key, value := range payload {
			if strings.EqualFold(key, name) {
				found = append(found, value)
			}
		}
		return found
	}
	require.True(t, slices.ContainsFunc(value("sub"), func(subject any) bool {
		text, ok := subject.(string)
		return ok && strings.HasPrefix(text, "system:serviceaccount:"+namespace+":")
	}))
	require.NotEmpty(t, value("aud"))
	require.NotEmpty(t, value("exp"), "a token that does not state when it expires")
	require.False(t, now.After(expires))
}
