package properties

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
)

const readTimeout = 5 * time.Second

// APIServer reads and watches single Secrets and ConfigMaps. It needs no rights on other objects.
type APIServer struct {
	secrets    *kube.Client[*corev1.Secret, *corev1.SecretList]
	configMaps *kube.Client[*corev1.ConfigMap, *corev1.ConfigMapList]
	reviews    *kube.Client[*authenticationv1.SelfSubjectReview, *metav1.List]

	mu   sync.Mutex
	user string // of this process; empty until it is needed
}

// NewAPIServer returns an API of the API server.
func NewAPIServer(config *rest.Config) (*APIServer, error) {
	core := corev1.SchemeGroupVersion
	secrets, secretsErr := kube.NewClient[corev1.Secret, corev1.SecretList](config, core.WithResource("secrets"))
	configMaps, configMapsErr := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](config, core.WithResource("configmaps"))
	reviews, reviewsErr := kube.NewClient[authenticationv1.SelfSubjectReview, metav1.List](
		config, authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"))
	return &APIServer{secrets: secrets, configMaps: configMaps, reviews: reviews}, errors.Join(secretsErr, configMapsErr, reviewsErr)
}

// Read returns the data of an object.
func (a *APIServer) Read(ctx context.Context, ref Ref) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	data, err := a.get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%s %w", ref, ErrNotFound)
	case apierrors.IsForbidden(err):
		user, userErr := a.whoAmI(ctx)
		if userErr != nil {
			return nil, userErr
		}
		return nil, &ForbiddenError{ref, user}
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", ref, err)
	default:
		return data, nil
	}
}

func (a *APIServer) get(ctx context.Context, ref Ref) (map[string][]byte, error) {
	if ref.Kind == secretKind {
		secret, err := a.secrets.In(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return secret.Data, nil
	}
	configMap, err := a.configMaps.In(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(configMap.Data)+len(configMap.BinaryData))
	maps.Copy(data, configMap.BinaryData)
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// whoAmI returns the user name of this process, for instructions to users.
func (a *APIServer) whoAmI(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.user != "" {
		return a.user, nil
	}
	review, err := a.reviews.In(metav1.NamespaceAll).Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get own user name: %w", err)
	}
	a.user = review.Status.UserInfo.Username
	return a.user, nil
}

// Watch watches one object, starting with its current state.
func (a *APIServer) Watch(ctx context.Context, ref Ref) (watch.Interface, error) {
	byName := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name).String()}
	if ref.Kind == secretKind {
		return a.secrets.In(ref.Namespace).Watch(ctx, byName)
	}
	return a.configMaps.In(ref.Namespace).Watch(ctx, byName)
}
