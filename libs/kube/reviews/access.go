package reviews

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
)

// Access asks the API server about rights with SubjectAccessReviews.
type Access struct {
	reviews *kube.Client[*authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview]
}

// NewAccess returns an Access. It sends no request.
func NewAccess(config *rest.Config) (Access, error) {
	resource := authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
	// There is no list of SubjectAccessReviews.
	reviews, err := kube.NewClient[authorizationv1.SubjectAccessReview, authorizationv1.SubjectAccessReview](
		config, resource, authorizationv1.AddToScheme)
	return Access{reviews}, err
}

// Allowed returns whether the user has the right.
func (a Access) Allowed(
	ctx context.Context, user authenticationv1.UserInfo, attributes authorizationv1.ResourceAttributes,
) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &attributes, User: user.Username, UID: user.UID, Groups: user.Groups,
		Extra: map[string]authorizationv1.ExtraValue{},
	}}
	for key, value := range user.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	answer, err := a.reviews.In("").Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("create SubjectAccessReview: %w", err)
	}
	return answer.Status.Allowed, nil
}
