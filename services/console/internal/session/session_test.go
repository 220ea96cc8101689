package session

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoginLeadsToThisSite(t *testing.T) {
	for reference, want := range map[string]string{
		"":                              "/",
		"/":                             "/",
		"/devices?q=a&node=b":           "/devices?q=a&node=b",
		"/devices/default/a":            "/devices/default/a",
		"https://evil.example/x":        "/x",
		"//evil.example":                "/",
		"//evil.example/x":              "/x",
		"///evil.example":               "/evil.example",
		"/\\evil.example":               "/%5Cevil.example",
		"\\\\evil.example":              "/%5C%5Cevil.example",
		"/%2Fevil.example":              "/evil.example",
		"javascript:alert(1)":           "/",
		"/a\r\nSet-Cookie: b":           "/",
		"/%0d%0aSet-Cookie:%20b":        "/%0D%0ASet-Cookie:%20b",
		"/devices?q=%0d%0aSet-Cookie:b": "/devices?q=%0d%0aSet-Cookie:b",
	} {
		require.Equal(t, want, local(reference), reference)
	}
}

func TestGrantIsSafeToType(t *testing.T) {
	for name, want := range map[string]string{
		"system:serviceaccount:default:viewer": " --serviceaccount=default:viewer",
		"jane@example.com":                     " --user=jane@example.com",
		"jane; rm -rf '/'":                     ` --user='jane; rm -rf '\''/'\'''`,
	} {
		var f Forbidden
		f.Username = name
		require.Contains(t, f.Grant(), want)
	}
}
