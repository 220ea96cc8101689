package properties

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
)

// APIServer reads and watches single Secrets and ConfigMaps. It needs no rights on other objects
// and caches none.
type APIServer struct {
	secrets    *kube.Client[*corev1.Secret, *corev1.SecretList]
	configMaps *kube.Client[*corev1.ConfigMap, *corev1.ConfigMapList]
}

// NewAPIServer returns a Reader and WatchAPI of the API server.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	core, add := corev1.SchemeGroupVersion, corev1.AddToScheme
	secrets, secretsErr := kube.NewClient[corev1.Secret, corev1.SecretList](config, core.WithResource("secrets"), add)
	configMaps, configMapsErr := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](config, core.WithResource("configmaps"), add)
	return &APIServer{secrets, configMaps}, errors.Join(secretsErr, configMapsErr)
}

// Secret gets a Secret.
func (a *APIServer) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return a.secrets.In(namespace).Get(ctx, name, metav1.GetOptions{})
}

// ConfigMap gets a ConfigMap.
func (a *APIServer) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return a.configMaps.In(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Watch watches one object, starting with its current state.
func (a *APIServer) Watch(ctx context.Context, ref Ref) (watch.Interface, error) {
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()}
	if ref.Kind == secretKind {
		return a.secrets.In(ref.Namespace).Watch(ctx, byName)
	}
	return a.configMaps.In(ref.Namespace).Watch(ctx, byName)
}
