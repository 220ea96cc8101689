package reviews

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube"
)

const (
	maxUsers, maxInvalid = 1024, 4096
	// maxRights is enough for 10 users without rights in all namespaces, in 150 namespaces.
	maxRights = 8192
	// maxReviews is the number of reviews in progress.
	maxReviews = 16

	// interval is the age at which a result is reviewed again: the time in which a revoked right or
	// a deleted account takes effect.
	interval = 30 * time.Second
	// maxAge is the age until which a result is valid while the API server does not answer.
	maxAge = 5 * time.Minute
	// retryInterval is the time between two reviews while the API server does not answer.
	retryInterval = 5 * time.Second
	timeout       = 3 * time.Second
)

// Refusal means that a token is not valid.
type Refusal struct{ message string }

func (r *Refusal) Error() string { return r.message }

// LimitError means that a token was not reviewed.
type LimitError struct{ RetryAfter time.Duration }

func (e *LimitError) Error() string {
	return fmt.Sprintf("too many tokens that are not valid; try again in %s", e.RetryAfter.Round(time.Second))
}

// User is the user of a token.
type User struct {
	authenticationv1.UserInfo

	// key identifies the user with all groups.
	key string
}

// Reviewer reviews tokens and rights.
type Reviewer struct {
	tokens   *kube.Client[*authenticationv1.TokenReview, *authenticationv1.TokenReview]
	rights   *kube.Client[*authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview]
	users    *Kept[User] // by digest of the token
	decided  *Kept[bool] // by user and right
	limits   *limits
	inFlight *semaphore.Weighted
	count    func(resource, result string)
}

// NewReviewer returns a Reviewer. It calls count with the resource and the result of each review.
func NewReviewer(config *rest.Config, count func(resource, result string)) (*Reviewer, error) {
	r := &Reviewer{
		users: keep[User](maxUsers), decided: keep[bool](maxRights),
		limits: newLimits(), inFlight: semaphore.NewWeighted(maxReviews), count: count,
	}
	var err error
	// There is no list of reviews.
	r.tokens, err = kube.NewClient[authenticationv1.TokenReview, authenticationv1.TokenReview](
		config, authenticationv1.SchemeGroupVersion.WithResource(tokenReviews))
	if err != nil {
		return nil, err
	}
	r.rights, err = kube.NewClient[authorizationv1.SubjectAccessReview, authorizationv1.SubjectAccessReview](
		config, authorizationv1.SchemeGroupVersion.WithResource(accessReviews))
	return r, err
}

func keep[V any](size int) *Kept[V] {
	return Keep[V](Options{
		MaxResults: size, MaxRefusals: maxInvalid, RefusalAge: interval,
		Interval: interval, MaxAge: maxAge, RetryInterval: retryInterval,
		Refused: func(err error) bool { _, refused := errors.AsType[*Refusal](err); return refused },
	})
}

// Resources of the reviews.
const (
	tokenReviews  = "tokenreviews"
	accessReviews = "subjectaccessreviews"
)

// Results of reviews.
const (
	resultOK, resultRefused, resultError = "ok", "refused", "error"
)

// Counted lists the labels with which reviews are counted.
func Counted() [][]string {
	var labels [][]string
	for _, resource := range []string{tokenReviews, accessReviews} {
		for _, result := range []string{resultOK, resultRefused, resultError} {
			labels = append(labels, []string{resource, result})
		}
	}
	return labels
}

// User returns the user of a token that a client of the address sent. It returns a Refusal, a
// LimitError, or another error if the API server does not answer.
func (r *Reviewer) User(ctx context.Context, token, address string) (User, error) {
	digest := sha256.Sum256([]byte(token))
	key := string(digest[:])
	if _, known := r.users.Known(key); !known && r.users.Refusal(key) == nil {
		if refusal := check(token); refusal != nil {
			return User{}, refusal
		}
		if err := r.limits.admit(address); err != nil {
			return User{}, err
		}
	}
	return r.users.Get(ctx, key, expiry(token), func(ctx context.Context, _ bool) (User, error) {
		user, err := r.review(ctx, token)
		if _, refused := errors.AsType[*Refusal](err); refused {
			r.limits.failed(address)
		}
		return user, err
	})
}

func (r *Reviewer) review(ctx context.Context, token string) (user User, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.inFlight.Acquire(ctx, 1); err != nil {
		return user, fmt.Errorf("review token: %w", err)
	}
	defer r.inFlight.Release(1)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	reviewed, err := r.tokens.In("").Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		r.count(tokenReviews, resultError)
		return user, fmt.Errorf("create TokenReview: %w", err)
	}
	if !reviewed.Status.Authenticated || reviewed.Status.User.Username == "" {
		r.count(tokenReviews, resultRefused)
		return user, &Refusal{"the API server does not accept the token"}
	}
	r.count(tokenReviews, resultOK)
	identity, err := json.Marshal(reviewed.Status.User)
	if err != nil {
		return user, fmt.Errorf("encode user: %w", err)
	}
	digest := sha256.Sum256(identity)
	return User{UserInfo: reviewed.Status.User, key: string(digest[:])}, nil
}

// Right is a right on a resource or, with a path, on a URL that is not a resource, such as
// /metrics.
type Right struct {
	Verb string
	// Group, Resource and Namespace select objects. An empty namespace stands for all.
	Group, Resource, Namespace string
	Path                       string
}

// Allowed returns whether a user has a right.
func (r *Reviewer) Allowed(ctx context.Context, user User, right Right) (bool, error) {
	key := fmt.Sprintf("%s%q", user.key, right)
	return r.decided.Get(ctx, key, time.Time{}, func(ctx context.Context, _ bool) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := r.inFlight.Acquire(ctx, 1); err != nil {
			return false, fmt.Errorf("review rights: %w", err)
		}
		defer r.inFlight.Release(1)
		review := &authorizationv1.SubjectAccessReview{Spec: specOf(user, right)}
		reviewed, err := r.rights.In("").Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			r.count(accessReviews, resultError)
			return false, fmt.Errorf("create SubjectAccessReview: %w", err)
		}
		r.count(accessReviews, map[bool]string{true: resultOK, false: resultRefused}[reviewed.Status.Allowed])
		return reviewed.Status.Allowed, nil
	})
}

func specOf(user User, right Right) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
	}
	for key, value := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	if right.Path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: right.Verb, Path: right.Path}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: right.Verb, Group: right.Group, Resource: right.Resource, Namespace: right.Namespace,
		}
	}
	return spec
}
