// Package session finds out who sends a request: a token in the header Authorization, or in a
// cookie that the login page sets.
package session

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"akri.sh/libs/kube/reviews"
)

const (
	// Cookie is bound to the host, and sent over TLS only, because of its prefix.
	Cookie = "__Host-akri-console"
	// maxCookieToken is less than the size of a cookie that all browsers accept, 4096 bytes with
	// its name.
	maxCookieToken = 4000
	maxFormBytes   = 32 << 10
	formTimeout    = 10 * time.Second
)

// Results of a login.
const (
	Accepted = "accepted"
	Refused  = "refused"
	Limited  = "limited"
	Failed   = "error"
)

//go:embed pages.html
var pageText string

//go:embed login.js
var script []byte

// plain matches words that a shell does not change.
var plain = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

var pages = template.Must(template.New("").Parse(pageText))

// Options of Sessions.
type Options struct {
	// User returns the user of a token.
	User func(ctx context.Context, token, address string) (reviews.User, error)
	// Login counts logins by result.
	Login func(result string)
	Log   *zap.Logger
}

// Sessions authenticates requests. It keeps nothing: the browser has the token.
type Sessions struct {
	Options

	refusals rate.Sometimes
}

// New returns Sessions.
func New(options Options) *Sessions {
	return &Sessions{Options: options, refusals: rate.Sometimes{First: 5, Interval: 10 * time.Second}}
}

// Session is the sender of a request.
type Session struct {
	reviews.User

	// CanLogOut is true if the token is in a cookie.
	CanLogOut bool
}

// Handle adds the paths that log in and out.
func (s *Sessions) Handle(mux *http.ServeMux) {
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", logout)
	mux.Handle("GET /login", http.RedirectHandler("/", http.StatusSeeOther))
	mux.HandleFunc("GET /login.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(script)
	})
}

// Of returns the sender of a request, or the page that answers the request.
func (s *Sessions) Of(r *http.Request) (Session, http.Handler) {
	token, inCookie := tokenOf(r)
	if token == "" && r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		return Session{}, http.HandlerFunc(again)
	}
	if token == "" {
		return Session{}, page{code: http.StatusUnauthorized, Next: r.URL.RequestURI()}
	}
	user, err := s.User(r.Context(), token, r.RemoteAddr)
	if err != nil {
		return Session{}, refused(err, r.URL.RequestURI())
	}
	return Session{user, inCookie}, nil
}

// again makes the browser send a request again. It sends no cookie with a request that follows a
// link of another site. The second request follows this page.
func again(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Refresh", "0")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "Loading.")
}

// tokenOf returns the token of a request and whether it is in the cookie. The header takes
// precedence, because a proxy sets it.
func tokenOf(r *http.Request) (token string, inCookie bool) {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token), false
	}
	if cookie, err := r.Cookie(Cookie); err == nil {
		return cookie.Value, true
	}
	return "", false
}

func (s *Sessions) login(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTimeout))
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	token, next := strings.TrimSpace(r.PostForm.Get("token")), r.PostForm.Get("next")
	if len(token) > maxCookieToken {
		message := fmt.Sprintf("The token has %d bytes. A browser keeps at most %d; use a token with fewer groups, or a proxy that sends it.", len(token), maxCookieToken)
		page{code: http.StatusBadRequest, Problem: message, Next: next}.ServeHTTP(w, r)
		return
	}
	user, err := s.User(r.Context(), token, r.RemoteAddr)
	if err != nil {
		refusal := refused(err, next)
		s.Login(refusal.result)
		s.refusals.Do(func() {
			s.Log.Warn("login refused", zap.String("address", r.RemoteAddr), zap.Error(err))
		})
		refusal.ServeHTTP(w, r)
		return
	}
	s.Login(Accepted)
	s.Log.Info("user logged in", zap.String("user", user.Username), zap.String("address", r.RemoteAddr))
	http.SetCookie(w, cookie(token, 0))
	http.Redirect(w, r, local(next), http.StatusSeeOther) //nolint:gosec // G710: local has no other site.
}

func logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, cookie("", -1))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// cookie returns a cookie that ends with the browser, or now if maxAge is negative.
func cookie(token string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: Cookie, Value: token, Path: "/", MaxAge: maxAge,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// local returns the path and the query of a reference, so that a form cannot lead to another site.
func local(reference string) string {
	parsed, err := url.Parse(reference)
	if err != nil {
		return "/"
	}
	return (&url.URL{Path: path.Clean("/" + parsed.Path), RawQuery: parsed.RawQuery}).String()
}

// page answers a request with the login page.
type page struct {
	code       int
	result     string
	retryAfter time.Duration
	// Problem is empty if there was no token.
	Problem string
	// Next is the page to show after the login.
	Next string
}

// refused returns the page that states why a token is not accepted.
func refused(err error, next string) page {
	var refusal *reviews.Refusal
	var limit *reviews.LimitError
	switch {
	case errors.As(err, &refusal):
		return page{code: http.StatusUnauthorized, result: Refused, Problem: sentence(refusal), Next: next}
	case errors.As(err, &limit):
		return page{code: http.StatusTooManyRequests, result: Limited, retryAfter: limit.RetryAfter, Problem: sentence(limit), Next: next}
	default:
		return page{code: http.StatusServiceUnavailable, result: Failed, Problem: "The API server does not answer, so the token cannot be verified. Try again later.", Next: next}
	}
}

func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// ServeHTTP implements http.Handler.
func (p page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if p.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="akri-console"`)
	}
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	show(w, p.code, "login", p)
}

// Forbidden answers a request of a user who may see nothing.
type Forbidden struct {
	Session

	// Resources that the user may not list.
	Resources []string
}

// ServeHTTP implements http.Handler.
func (f Forbidden) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	show(w, http.StatusForbidden, "forbidden", f)
}

func show(w http.ResponseWriter, code int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = pages.ExecuteTemplate(w, name, data)
}

// Grant returns the commands that grant the user the right to see everything.
func (f Forbidden) Grant() string {
	const create = "kubectl create clusterrole akri-viewer --verb=list,watch --resource=configurations.akri.sh,instances.akri.sh," +
		"pods,jobs.batch,nodes,events,daemonsets.apps,deployments.apps,validatingwebhookconfigurations.admissionregistration.k8s.io\n"
	subject := "--user=" + quote(f.Username)
	if account, ok := strings.CutPrefix(f.Username, "system:serviceaccount:"); ok {
		subject = "--serviceaccount=" + quote(account)
	}
	return create + "kubectl create clusterrolebinding akri-viewer --clusterrole=akri-viewer " + subject
}

// quote quotes a name for a shell.
func quote(name string) string {
	if plain.MatchString(name) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
