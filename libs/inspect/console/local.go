package console

import (
	"crypto/subtle"
	"net"
	"net/http"
)

// cookieOf returns the name of the cookie that has the token. Cookies have no port, so that two
// consoles on one machine need two names.
func cookieOf(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "akri-console-" + port
}

// Local restricts a handler on loopback to the user who got the token, because other users of the
// machine can connect, too. The first request has the token as a parameter. A cookie, which scripts
// and other sites do not get, has it after that.
func Local(token string, next http.Handler) http.Handler {
	is := func(value string) bool { return subtle.ConstantTimeCompare([]byte(value), []byte(token)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if is(r.URL.Query().Get("token")) {
			//nolint:gosec // G124: not Secure, because there is no TLS on loopback.
			http.SetCookie(w, &http.Cookie{Name: cookieOf(r), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		if sent, err := r.Cookie(cookieOf(r)); err != nil || !is(sent.Value) {
			http.Error(w, "open the address that kubectl akri console has printed", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
