package brokercontroller_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube"
	brokercontroller "akri.sh/services/broker-controller"
)

// authorize checks the rights of authors.
func authorize(c *brokercontroller.WebhookConfig) { c.Authorize = true }

// author creates a user who may write Configurations, with the rules in addition.
func (e webhookEnv) author(user string, rules ...rbacv1.PolicyRule) {
	e.Helper()
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"akri.sh"}, Resources: []string{"configurations"}, Verbs: []string{"*"}})
	meta := metav1.ObjectMeta{Name: user, Namespace: e.namespace}
	_, err := e.clientset.RbacV1().Roles(e.namespace).Create(e.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	require.NoError(e, err)
	_, err = e.clientset.RbacV1().RoleBindings(e.namespace).Create(e.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	require.NoError(e, err)
	// The authorizer learns of the Role from a watch.
	e.eventually(func() bool {
		review, err := e.clientset.AuthorizationV1().SubjectAccessReviews().Create(e.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: e.namespace, Verb: "patch", Group: "akri.sh", Resource: "configurations",
			}},
		}, metav1.CreateOptions{})
		require.NoError(e, err)
		return review.Status.Allowed
	}, "the rights of "+user)
}

// applyAs applies a Configuration as a user.
func (e webhookEnv) applyAs(user, name, spec string) error {
	config := rest.CopyConfig(server.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	configurations, err := kube.Configurations(config)
	require.NoError(e, err)
	text, err := yaml.YAMLToJSON([]byte("{apiVersion: akri.sh/v0, kind: Configuration, metadata: {name: " + name + "}, spec: " + spec + "}"))
	require.NoError(e, err)
	_, err = configurations.In(e.namespace).Patch(e.Context(), name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "test", Force: new(true)})
	return err
}

const ofAuthor = `{discoveryHandler: {name: onvif, discoveryProperties: [{name: password, valueFrom: {secretKeyRef: {name: camera, key: k}}}]},
  brokerSpec: {brokerJobSpec: {template: {spec: {containers: [{name: a, image: a}]}}}}}`

// TestAuthorsNeedRights asks the authorizer of a real API server. The command in the message grants
// the rights.
func TestAuthorsNeedRights(t *testing.T) {
	e := newWebhookEnv(t)
	e.serve(authorize)
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	require.NoError(t, e.dryRun("good", podsOnly), "an administrator has all rights")

	e.author("none")
	err := e.applyAs("none", "camera", ofAuthor)
	for _, message := range []string{
		"Akri would act for the author of the Configuration",
		`spec.discoveryHandler.name: user "none" cannot use discoveryhandlers.akri.sh "onvif" in namespace "` + e.namespace + `"`,
		`secretKeyRef: user "none" cannot get secrets "camera" in namespace`,
		`spec.brokerSpec.brokerJobSpec: user "none" cannot create jobs.batch in namespace`,
	} {
		require.ErrorContains(t, err, message)
	}
	_, manifests, _ := strings.Cut(err.Error(), "<<'EOF'\n")
	e.create(strings.TrimSuffix(manifests, "EOF"))
	e.eventually(func() bool { return e.applyAs("none", "camera", ofAuthor) == nil }, "the granted rights")

	e.author("one", rbacv1.PolicyRule{APIGroups: []string{"akri.sh"}, Resources: []string{"discoveryhandlers"}, ResourceNames: []string{"onvif"}, Verbs: []string{"use"}})
	require.NoError(t, e.applyAs("one", "own", `{discoveryHandler: {name: onvif}}`))
	require.ErrorContains(t, e.applyAs("one", "own", `{discoveryHandler: {name: udev}}`), `cannot use discoveryhandlers.akri.sh "udev"`)
	e.author("two")
	edited := strings.Replace(ofAuthor, "{disc", "{capacity: 5, disc", 1)
	require.NoError(t, e.applyAs("two", "camera", edited), "the capacity needs no other right")
	require.ErrorContains(t, e.applyAs("two", "camera", strings.Replace(edited, "image: a", "image: b", 1)), "cannot create jobs.batch")
}

// create creates the Roles and RoleBindings.
func (e webhookEnv) create(manifests string) {
	e.Helper()
	for text := range strings.SplitSeq(manifests, "---\n") {
		var role rbacv1.Role
		var binding rbacv1.RoleBinding
		require.NoError(e, yaml.Unmarshal([]byte(text), &role))
		var err error
		if role.Kind == "Role" {
			_, err = e.clientset.RbacV1().Roles(role.Namespace).Create(e.Context(), &role, metav1.CreateOptions{})
		} else {
			require.NoError(e, yaml.UnmarshalStrict([]byte(text), &binding))
			_, err = e.clientset.RbacV1().RoleBindings(binding.Namespace).Create(e.Context(), &binding, metav1.CreateOptions{})
		}
		require.NoError(e, err)
	}
}

func TestNameOfAnInstanceIsRefused(t *testing.T) {
	e := newWebhookEnv(t)
	e.configuration("debug-echo", podsOnly)
	e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	require.ErrorContains(t, e.dryRun("debug-echo-8120fe", podsOnly),
		"metadata.name: Forbidden: is a name of Instances of Configuration "+e.namespace+"/debug-echo; both would have the same resource under akri.sh/")
}

// TestManyUnknownFields has more unknown fields than are named, of a type whose schema is read.
func TestManyUnknownFields(t *testing.T) {
	e := newWebhookEnv(t)
	e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	var fields strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, "%q: 1, ", fmt.Sprintf("f%d", i))
	}
	text := `{"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "many"}, "spec": {"discoveryHandler": {"name": "debugEcho"},
		"brokerSpec": {"brokerPodSpec": {"containers": [{` + fields.String() + `"name": "a"}]}}}}`
	_, err := e.Configurations.In(e.namespace).Patch(t.Context(), "many", types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "test"})
	require.ErrorContains(t, err, "containers[0].f0: Forbidden: unknown field")
	require.ErrorContains(t, err, "spec: Invalid value: has 19950 more problems")
}

// TestClientCertificate calls the webhook with a certificate of the CA of the API servers, of
// another CA, and without one.
func TestClientCertificate(t *testing.T) {
	e := newWebhookEnv(t)
	own, ca := clientCertificate(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))
	var address string
	e.serve(func(c *brokercontroller.WebhookConfig) { c.ClientCA, address = file, c.URL })
	e.eventually(e.ready, "readiness")

	post := func(certificates ...tls.Certificate) (int, string) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(`{}`))
		require.NoError(t, err)
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, body := post()
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "a client certificate is required")
	status, body = post(own)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "AdmissionReview has no request")
	other, _ := clientCertificate(t)
	status, body = post(other)
	require.Zero(t, status)
	require.Contains(t, body, "tls: ")
}

// Reviews are made while other clients hold connections. A connection has one request: with HTTP/2
// a client could keep many in progress by not receiving their responses.
func TestIdleConnectionsDoNotDelayReviews(t *testing.T) {
	e := newWebhookEnv(t)
	var address *url.URL
	e.serve(func(c *brokercontroller.WebhookConfig) {
		parsed, err := url.Parse(c.URL)
		require.NoError(t, err)
		address = parsed
	})
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")

	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
	for range 30 {
		conn, err := dialer.DialContext(t.Context(), "tcp", address.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.Equal(t, "http/1.1", conn.(*tls.Conn).ConnectionState().NegotiatedProtocol)
		_, err = io.WriteString(conn, "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
		require.NoError(t, err)
	}
	require.ErrorContains(t, e.dryRun("misspelt", misspelt), "unknown field")
}

// clientCertificate returns a certificate that is its own CA, and its PEM.
func clientCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
