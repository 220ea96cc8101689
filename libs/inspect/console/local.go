package console

import (
	"crypto/subtle"
	"net/http"
)

// cookie has the token.
const cookie = "akri-console"

// Local restricts a handler on loopback to the user who got the token, because other users of the
// machine can connect, too. The first request has the token as a parameter. A cookie, which scripts
// and other sites do not get, has it after that.
func Local(token string, next http.Handler) http.Handler {
	is := func(value string) bool { return subtle.ConstantTimeCompare([]byte(value), []byte(token)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if is(r.URL.Query().Get("token")) {
			//nolint:gosec // G124: not Secure, because there is no TLS on loopback.
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		if sent, err := r.Cookie(cookie); err != nil || !is(sent.Value) {
			http.Error(w, "open the address that kubectl akri console has printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
