package console_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/admin"
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/service"
	"akri.sh/services/console"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	cookieName = "__Host-akri-console"
	deadline   = 30 * time.Second
)

// site is a running console and a client of the API server.
type site struct {
	*cluster.Client

	url string
}

// start runs the console until the end of the test.
func start(t *testing.T) *site {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	env := service.Env{Log: zaptest.NewLogger(t), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
	s, err := console.New(console.Config{Flags: kube.Flags{REST: server.Config()}, Address: "127.0.0.1:0", TLS: console.TLSConfig{Service: "akri-console"}}, env)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- s.Serve(ctx, listener, nil) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-stopped) })
	require.Eventually(t, func() bool { return env.Health.Ready(t.Context()) == nil }, deadline, 10*time.Millisecond)
	return &site{client, "https://" + listener.Addr().String()}
}

// deleter deletes an object by its name.
type deleter interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// cleanUp deletes an object at the end of the test. The tests share an API server, also repeated
// ones.
func cleanUp(t *testing.T, objects deleter, name string) {
	t.Helper()
	t.Cleanup(func() {
		require.NoError(t, objects.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
}

// namespace creates a namespace with a Configuration and an Instance. The namespace remains:
// without a controller manager it would be terminating for good.
func (s *site) namespace(t *testing.T, name string) {
	t.Helper()
	ctx := t.Context()
	_, err := s.Kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cameras", Namespace: name}}
	configuration.Spec.DiscoveryHandler.Name = "onvif"
	_, err = s.Configurations.In(name).Create(ctx, configuration, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, s.Configurations.In(name), configuration.Name)
	s.device(t, name, "cameras-"+name)
	event, err := s.Kubernetes.CoreV1().Events(name).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Message: "message of " + name,
		InvolvedObject: corev1.ObjectReference{APIVersion: "akri.sh/v0", Kind: "Configuration", Namespace: name, Name: "cameras"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, s.Kubernetes.CoreV1().Events(name), event.Name)
	s.user(t, name)
}

// user creates a Pod that waits for a device, and a Warning about it.
func (s *site) user(t *testing.T, namespace string) {
	t.Helper()
	ctx, core := t.Context(), s.Kubernetes.CoreV1()
	container := corev1.Container{Name: "main", Image: "none"}
	container.Resources.Limits = corev1.ResourceList{"akri.sh/cameras": resource.MustParse("1")}
	_, err := core.Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user-" + namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, core.Pods(namespace), "user-"+namespace)
	event, err := core.Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Message: "warning of " + namespace,
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "user-" + namespace},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, core.Events(namespace), event.Name)
}

func (s *site) device(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := s.Instances.In(namespace).Create(t.Context(), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: "cameras", CDIName: "akri.sh/cameras=1", Capacity: 1,
			BrokerProperties: map[string]string{"PASSWORD": "hunter22"},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, s.Instances.In(namespace), name)
}

// token creates a service account and returns a token of it.
func (s *site) token(t *testing.T, account string) string {
	t.Helper()
	accounts := s.Kubernetes.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	require.NoError(t, err)
	cleanUp(t, accounts, account)
	token, err := accounts.CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

// viewing are rules to list everything that the pages show.
var viewing = []rbacv1.PolicyRule{
	{APIGroups: []string{"akri.sh"}, Resources: []string{"configurations", "instances"}, Verbs: []string{"list"}},
	{APIGroups: []string{"", "batch", "apps"}, Resources: []string{"pods", "nodes", "events", "jobs", "daemonsets", "deployments"}, Verbs: []string{"list"}},
	{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}, Verbs: []string{"list"}},
}

// grant lets a service account view a namespace, or all if it is empty.
func (s *site) grant(t *testing.T, account, namespace string) {
	t.Helper()
	ctx, rbac := t.Context(), s.Kubernetes.RbacV1()
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}}
	meta := metav1.ObjectMeta{Name: account}
	require.Eventually(t, func() bool { return !s.mayList(t, account, namespace) }, deadline, 20*time.Millisecond, "rights of the run before")
	if namespace == "" {
		_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: viewing}, metav1.CreateOptions{})
		require.NoError(t, err)
		cleanUp(t, rbac.ClusterRoles(), account)
		_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		cleanUp(t, rbac.ClusterRoleBindings(), account)
	} else {
		_, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: viewing}, metav1.CreateOptions{})
		require.NoError(t, err)
		cleanUp(t, rbac.Roles(namespace), account)
		_, err = rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		cleanUp(t, rbac.RoleBindings(namespace), account)
	}
	// The authorizer of the API server reads Roles from a cache.
	require.Eventually(t, func() bool { return s.mayList(t, account, namespace) }, deadline, 20*time.Millisecond)
}

// browser is a client with cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as a user accepts the certificate
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Jar: jar, Timeout: deadline}
}

// send sends a request and returns the response with its text.
func (s *site) send(t *testing.T, client *http.Client, method, path string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(text)
}

func (s *site) get(t *testing.T, client *http.Client, path string, header ...string) (*http.Response, string) {
	t.Helper()
	return s.send(t, client, http.MethodGet, path, nil, header...)
}

// login logs in and returns the page to which it leads.
func (s *site) login(t *testing.T, client *http.Client, token, next string) (*http.Response, string) {
	t.Helper()
	return s.send(t, client, http.MethodPost, "/login", url.Values{"token": {token}, "next": {next}})
}

// TestUsersSeeWhatTheyMayList compares a user who may list everything with one who may list one
// namespace.
func TestUsersSeeWhatTheyMayList(t *testing.T) {
	s := start(t)
	s.namespace(t, "east")
	s.namespace(t, "west")
	all, one := browser(t), browser(t)
	everything, west := s.token(t, "everything"), s.token(t, "west-only")
	s.grant(t, "everything", "")
	s.grant(t, "west-only", "west")

	require.Eventually(t, func() bool {
		_, text := s.login(t, all, everything, "/devices")
		return strings.Contains(text, "cameras-east") && strings.Contains(text, "cameras-west")
	}, deadline, 50*time.Millisecond)
	for path, shown := range map[string]string{
		"/": "west/cameras", "/devices": "west/cameras-west", "/configurations": "west/cameras", "/events": "message of west",
		"/devices/west/cameras-west": "PASSWORD", "/configurations/west/cameras": "onvif",
		"/problems": "west/cameras", "/pods": "user-west", "/pods/west/user-west": "warning of west", "/services": "0 services", "/nodes": "0 nodes",
	} {
		response, text := s.get(t, all, path)
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Contains(t, text, shown, path)
		require.Contains(t, text, "system:serviceaccount:default:everything", path)
		require.NotContains(t, text, "You may not list", path)
		require.NotContains(t, text, "hunter22", path)

		if path == "/" {
			_, _ = s.login(t, one, west, "/")
		}
		response, text = s.get(t, one, path, "Authorization", "Bearer "+west)
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Contains(t, text, shown, path)
		require.Contains(t, text, "You may not list: nodes, validatingwebhookconfigurations", path)
		require.Contains(t, text, "Those of other namespaces are not shown", path)
		require.NotContains(t, text, "east", path)
	}
	for path, hidden := range map[string]string{"/devices/east/cameras-east": "PASSWORD", "/configurations/east/cameras": "onvif", "/pods/east/user-east": "warning of east"} {
		response, text := s.get(t, one, path, "Authorization", "Bearer "+west)
		require.Equal(t, http.StatusNotFound, response.StatusCode, path)
		require.NotContains(t, text, hidden, path)
		absent, _ := s.get(t, one, strings.ReplaceAll(path, "east", "none"), "Authorization", "Bearer "+west)
		require.Equal(t, absent.StatusCode, response.StatusCode, "as an object that does not exist")
	}
}

func TestUserWithoutRights(t *testing.T) {
	s := start(t)
	s.namespace(t, "north")
	client := browser(t)
	response, text := s.login(t, client, s.token(t, "without-rights"), "/devices")
	require.Equal(t, http.StatusForbidden, response.StatusCode)
	require.Contains(t, text, "system:serviceaccount:default:without-rights may not list configurations.akri.sh or instances.akri.sh")
	require.Contains(t, text, "--serviceaccount=default:without-rights")
	require.Contains(t, text, "Log out")
	require.NotContains(t, text, "north")
}

func TestLogin(t *testing.T) {
	s := start(t)
	token := s.token(t, "jane")
	s.grant(t, "jane", "")
	client := browser(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	response, text := s.get(t, client, "/devices?q=a")
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	require.Contains(t, response.Header.Get("WWW-Authenticate"), "Bearer")
	require.Contains(t, text, `name="next" value="/devices?q=a"`)
	require.NotContains(t, text, `role="alert"`)

	response, _ = s.login(t, client, " "+token+"\n", "/devices?q=a")
	require.Equal(t, http.StatusSeeOther, response.StatusCode)
	require.Equal(t, "/devices?q=a", response.Header.Get("Location"))
	cookies := response.Cookies()
	require.Len(t, cookies, 1)
	require.Equal(t, cookieName, cookies[0].Name)
	require.True(t, cookies[0].Secure && cookies[0].HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookies[0].SameSite)
	require.Equal(t, "/", cookies[0].Path)
	require.Empty(t, cookies[0].Domain)

	response, text = s.get(t, client, "/")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, text, "Log out")
	require.NotContains(t, text, token)
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	_, text = s.get(t, browser(t), "/", "Authorization", "Bearer "+token)
	require.NotContains(t, text, "Log out", "a proxy sends the token")

	response, _ = s.send(t, client, http.MethodPost, "/logout", url.Values{})
	require.Equal(t, http.StatusSeeOther, response.StatusCode)
	require.Equal(t, -1, response.Cookies()[0].MaxAge)
	response, _ = s.get(t, client, "/")
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
}

// TestAttacksOnTheLogin has attempts of other sites and of clients without a token.
func TestAttacksOnTheLogin(t *testing.T) {
	s := start(t)
	token := s.token(t, "victim")
	s.grant(t, "victim", "")
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
		for _, path := range []string{"/login", "/logout"} {
			response, _ := s.send(t, browser(t), http.MethodPost, path, url.Values{"token": {token}}, header...)
			require.Equal(t, http.StatusForbidden, response.StatusCode, "%s %v", path, header)
			require.Empty(t, response.Cookies())
		}
	}
	for _, invalid := range []string{"", "wrong", "a.b.c", token + "x", token[:len(token)-3] + "abc", "a\r\nb", "<script>"} {
		client := browser(t)
		response, text := s.login(t, client, invalid, `"><script>alert(1)</script>`)
		require.Equal(t, http.StatusUnauthorized, response.StatusCode, invalid)
		require.Empty(t, response.Cookies())
		require.NotContains(t, text, "<script>alert")
		response, _ = s.get(t, client, "/")
		require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	}
	for _, header := range []string{"Bearer wrong", "Basic " + token, token, "Bearer", "Bearer " + token + " " + token} {
		response, _ := s.get(t, browser(t), "/", "Authorization", header)
		require.Equal(t, http.StatusUnauthorized, response.StatusCode, header)
	}
	response, text := s.login(t, browser(t), strings.Repeat("a", 4001), "/")
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	require.Contains(t, text, "4001 bytes")
	response, _ = s.login(t, browser(t), strings.Repeat("a", 64<<10), "/")
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		response, _ := s.send(t, browser(t), method, "/devices", url.Values{}, "Authorization", "Bearer "+token)
		require.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
	}
	response, text = s.get(t, browser(t), "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	require.Equal(t, "0", response.Header.Get("Refresh"), "the browser sends the cookie with the second request")
	require.Equal(t, "Loading.\n", text)
}

// A client without a token opens as many connections as it can, and keeps each after a request. The
// console answers others meanwhile.
func TestIdleConnections(t *testing.T) {
	const maxConnections = 512
	s := start(t)
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}},
		Config:    &tls.Config{InsecureSkipVerify: true},
	}
	for range maxConnections {
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /login HTTP/1.1\r\nHost: console\r\n\r\n")
		require.NoError(t, err)
	}

	response, _ := s.get(t, browser(t), "/login.js") // before the idle connections end, after 2 minutes
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// TestOpenPage follows the cluster with a stream over HTTP/2.
func TestOpenPage(t *testing.T) {
	s := start(t)
	s.namespace(t, "south")
	token := s.token(t, "watcher")
	s.grant(t, "watcher", "south")
	open := func(token string) func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/devices", nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := browser(t).Do(request) //nolint:bodyclose // closed below
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		require.Equal(t, 2, response.ProtoMajor)
		lines := bufio.NewScanner(response.Body)
		return func() string {
			var message strings.Builder
			for lines.Scan() && lines.Text() != "" {
				message.WriteString(lines.Text() + "\n")
			}
			return message.String()
		}
	}
	next := open(token)
	require.Contains(t, next(), "1 device<")
	s.device(t, "south", "cameras-new")
	require.Contains(t, next(), "2 devices<")
	require.Equal(t, "event: reload\ndata:\n", open("wrong")(), "the page is loaded again and shows the login")
	require.Equal(t, "event: reload\ndata:\n", open(s.token(t, "none"))())
}

// TestAPIServerIsAway checks that known users still see the pages, which show the problem.
func TestAPIServerIsAway(t *testing.T) {
	s := start(t)
	token, other := s.token(t, "known"), s.token(t, "unknown")
	s.grant(t, "known", "")
	client := browser(t)
	response, _ := s.login(t, client, token, "/")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, server.Pause())
	defer func() { require.NoError(t, server.Resume()) }()
	require.Eventually(t, func() bool {
		response, text := s.get(t, client, "/")
		return response.StatusCode == http.StatusOK && strings.Contains(text, "The API server does not answer. Its last answer was")
	}, deadline, 100*time.Millisecond)
	response, text := s.login(t, browser(t), other, "/")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Contains(t, text, "so the token cannot be verified")
	require.NoError(t, server.Resume())
	require.Eventually(t, func() bool {
		response, _ := s.login(t, browser(t), other, "/")
		return response.StatusCode == http.StatusForbidden // the token is accepted, and has no rights
	}, deadline, 100*time.Millisecond)
}

func TestPlainTextIsForTheSamePod(t *testing.T) {
	env := service.Env{Log: zaptest.NewLogger(t), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
	for _, address := range []string{":8081", "0.0.0.0:8081", "192.0.2.1:8081", "localhost:8081", "[::]:8081"} {
		_, err := console.New(console.Config{Flags: kube.Flags{REST: server.Config()}, PlainAddress: address}, env)
		require.ErrorContains(t, err, "must be an address of the loopback interface", address)
	}
	_, err := console.New(console.Config{Flags: kube.Flags{REST: server.Config()}, PlainAddress: "127.0.0.1:8081"}, env)
	require.NoError(t, err)
}

func (s *site) mayList(t *testing.T, account, namespace string) bool {
	t.Helper()
	review, err := s.Kubernetes.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:default:" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments", Namespace: namespace},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}
