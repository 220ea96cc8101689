package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/gentype"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

func (h *harness) secrets() *gentype.ClientWithList[*corev1.Secret, *corev1.SecretList] {
	h.t.Helper()
	secrets, err := kube.NewClient[corev1.Secret, corev1.SecretList](
		server.Config(), corev1.SchemeGroupVersion.WithResource("secrets"), corev1.AddToScheme)
	require.NoError(h.t, err)
	return secrets.In(h.namespace)
}

// secret creates or updates a Secret with the key k.
func (h *harness) secret(name, value string) {
	h.t.Helper()
	desired := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"k": []byte(value)}}
	_, err := h.secrets().Create(h.t.Context(), desired, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = h.secrets().Update(h.t.Context(), desired, metav1.UpdateOptions{})
	}
	require.NoError(h.t, err)
}

// password returns a property from the Secret.
func password(secret string, optional bool) akriv0.DiscoveryProperty {
	return akriv0.DiscoveryProperty{Name: "password", ValueFrom: &akriv0.PropertySource{
		SecretKeyRef: &akriv0.KeyRef{Name: secret, Key: "k", Optional: optional},
	}}
}

// A changed value is sent on a new stream. No device leaves meanwhile.
func TestChangedSecret(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.secret("s", "first")
	h.start()
	key := h.apply(h.namespace, "rotated", "foo", "d", password("s", false))
	h.reported(key, true, "x")
	for i, next := range []string{"second", "third"} {
		changed := time.Now()
		h.secret("s", next)
		h.eventually(func() bool { return len(handler.received()) == i+2 && handler.openStreams() == 1 }, next)
		t.Logf("new stream after %v", time.Since(changed))
	}
	require.Equal(t, []string{"first", "second", "third"}, handler.passwords())
	h.neverGone(key, "x")
}

// A change of a key that no property uses does not restart the stream.
func TestUnrelatedChangeOfSecret(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.secret("s", "same")
	h.start()
	h.reported(h.apply(h.namespace, "same", "foo", "d", password("s", false)), true, "x")
	secret, err := h.secrets().Get(t.Context(), "s", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["other"] = []byte("new")
	_, err = h.secrets().Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	// When the change of the second Secret is handled, that of the first one is, too.
	h.secret("marker", "1")
	h.reported(h.apply(h.namespace, "marker", "foo", "d", password("marker", false)), true, "x")
	h.secret("marker", "2")
	h.eventually(func() bool { return len(handler.received()) == 3 }, "the request with the changed marker")
	require.Equal(t, []string{"same", "1", "2"}, handler.passwords())
}

// A deleted Secret is reported. The stream and its devices stay.
func TestDeletedSecret(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.secret("s", "value")
	h.start()
	key := h.apply(h.namespace, "deleted", "foo", "d", password("s", false))
	h.reported(key, true, "x")
	require.NoError(t, h.secrets().Delete(t.Context(), "s", metav1.DeleteOptions{}))
	require.Contains(t, h.problem(key, akriv0.ReasonPropertyNotFound).GetMessage(), "/s not found")
	h.reported(key, true, "x")
	require.Equal(t, 1, handler.openStreams())
	h.secret("s", "value")
	h.eventually(func() bool {
		reports := h.writer.reportsOf(key)
		return len(reports[len(reports)-1].GetProblems()) == 0
	}, "no problems")
	require.Len(t, handler.received(), 1, "the stream with the same value stays open")
}

// Creating and deleting an optional Secret restarts the stream.
func TestOptionalSecret(t *testing.T) {
	h := newHarness(t, forever)
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "optional", "foo", "d", password("s", true))
	h.reported(key, true, "x")
	h.secret("s", "here")
	h.eventually(func() bool { return len(handler.received()) == 2 }, "the request with the Secret")
	require.NoError(t, h.secrets().Delete(t.Context(), "s", metav1.DeleteOptions{}))
	h.eventually(func() bool { return len(handler.received()) == 3 }, "the request without the Secret")
	require.Equal(t, []string{"", "here", ""}, handler.passwords())
	h.neverGone(key, "x")
}
