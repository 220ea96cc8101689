package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
)

const (
	reviewTimeout = 3 * time.Second
	// nodeNameKey is set for tokens that are bound to a Pod or a Node, since Kubernetes 1.30.
	nodeNameKey  = "authentication.kubernetes.io/node-name"
	accountsName = "system:serviceaccount:"
)

// Reviewer returns the service account and the node of a token. It returns a Refusal if the token
// is not valid, and another error if this is not known.
type Reviewer func(ctx context.Context, token, namespace string) (Identity, error)

// NewReviewer returns a Reviewer that creates TokenReviews.
func NewReviewer(config *rest.Config) (Reviewer, error) {
	resource := authenticationv1.SchemeGroupVersion.WithResource("tokenreviews")
	// There is no list of TokenReviews.
	client, err := kube.NewClient[authenticationv1.TokenReview, authenticationv1.TokenReview](config, resource)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, token, namespace string) (Identity, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
		reviewed, err := client.In("").Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return Identity{}, fmt.Errorf("create TokenReview: %w", err)
		}
		return identityOf(reviewed.Status, namespace)
	}, nil
}

func identityOf(status authenticationv1.TokenReviewStatus, namespace string) (identity Identity, err error) {
	if !status.Authenticated || !slices.Contains(status.Audiences, Audience) {
		return identity, refuse(ReasonToken, "token is not valid: %s", status.Error)
	}
	account, ok := strings.CutPrefix(status.User.Username, accountsName+namespace+":")
	if !ok || account == "" {
		return identity, refuse(ReasonAccount, "%q is not a service account of namespace %q", status.User.Username, namespace)
	}
	identity.ServiceAccount = account
	nodes := status.User.Extra[nodeNameKey]
	if len(nodes) != 1 || nodes[0] == "" {
		return identity, refuse(ReasonNoNode, "token states no node; mount it as a projected volume, on Kubernetes 1.30 or later")
	}
	identity.Node = nodes[0]
	return identity, nil
}
