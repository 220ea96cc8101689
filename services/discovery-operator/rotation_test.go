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

func (w *world) secrets() *gentype.ClientWithList[*corev1.Secret, *corev1.SecretList] {
	w.t.Helper()
	secrets, err := kube.NewClient(server.Config(), corev1.SchemeGroupVersion.WithResource("secrets"), corev1.AddToScheme,
		func() *corev1.Secret { return &corev1.Secret{} }, func() *corev1.SecretList { return &corev1.SecretList{} })
	require.NoError(w.t, err)
	return secrets.In(w.namespace)
}

// secret makes or changes a Secret with the key k.
func (w *world) secret(name, value string) {
	w.t.Helper()
	wanted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"k": []byte(value)}}
	_, err := w.secrets().Create(w.t.Context(), wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = w.secrets().Update(w.t.Context(), wanted, metav1.UpdateOptions{})
	}
	require.NoError(w.t, err)
}

// password is a property from the Secret.
func password(secret string, optional bool) akriv0.DiscoveryProperty {
	return akriv0.DiscoveryProperty{Name: "password", ValueFrom: &akriv0.PropertySource{
		SecretKeyRef: &akriv0.KeyRef{Name: secret, Key: "k", Optional: optional},
	}}
}

// passwords are those that the handler was asked with, in order.
func (h *fakeHandler) passwords() (all []string) {
	for _, request := range h.asked() {
		all = append(all, string(request.GetDiscoveryProperties()["password"].GetVec()))
	}
	return all
}

func TestARotatedSecretIsFollowedInPlace(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.secret("s", "first")
	w.start()
	key := w.apply(w.namespace, "rotated", "foo", "d", password("s", false))
	w.reported(key, true, "x")
	for i, next := range []string{"second", "third"} {
		changed := time.Now()
		w.secret("s", next)
		w.eventually(func() bool { return len(handler.asked()) == i+2 && handler.streams(0) == 1 }, next)
		t.Logf("asked anew after %v", time.Since(changed))
	}
	require.Equal(t, []string{"first", "second", "third"}, handler.passwords())
	w.neverGone(key, "x")
}

func TestWhatDoesNotChangeAPropertyIsNoReasonToAskAgain(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.secret("s", "same")
	w.start()
	w.reported(w.apply(w.namespace, "same", "foo", "d", password("s", false)), true, "x")
	secret, err := w.secrets().Get(t.Context(), "s", metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data["other"] = []byte("new")
	_, err = w.secrets().Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	// A second Configuration has seen the change by the time that it has followed one of its own.
	w.secret("mark", "1")
	w.reported(w.apply(w.namespace, "mark", "foo", "d", password("mark", false)), true, "x")
	w.secret("mark", "2")
	w.eventually(func() bool { return len(handler.asked()) == 3 }, "the mark")
	require.Equal(t, []string{"same", "1", "2"}, handler.passwords())
}

func TestADeletedSecretIsReportedAndItsDevicesStay(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.secret("s", "value")
	w.start()
	key := w.apply(w.namespace, "deleted", "foo", "d", password("s", false))
	w.reported(key, true, "x")
	require.NoError(t, w.secrets().Delete(t.Context(), "s", metav1.DeleteOptions{}))
	require.Contains(t, w.problem(key, akriv0.ReasonPropertyNotFound).GetMessage(), "/s not found")
	w.reported(key, true, "x")
	require.Equal(t, 1, handler.streams(0))
	w.secret("s", "value")
	w.eventually(func() bool { reports := w.writer.of(key); return len(reports[len(reports)-1].GetProblems()) == 0 }, "well again")
	require.Len(t, handler.asked(), 1, "with the same value there is nothing to ask")
}

func TestAnOptionalSecretThatComesAndGoesIsFollowed(t *testing.T) {
	w := newWorld(t, forever)
	handler, _ := serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "optional", "foo", "d", password("s", true))
	w.reported(key, true, "x")
	w.secret("s", "here")
	w.eventually(func() bool { return len(handler.asked()) == 2 }, "with it")
	require.NoError(t, w.secrets().Delete(t.Context(), "s", metav1.DeleteOptions{}))
	w.eventually(func() bool { return len(handler.asked()) == 3 }, "without it")
	require.Equal(t, []string{"", "here", ""}, handler.passwords())
	w.neverGone(key, "x")
}
