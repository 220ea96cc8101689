package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const (
	// maxRights limits the SubjectAccessReviews of one review.
	maxRights          = 512
	concurrentRequests = 8
)

// Authorizer decides about the rights of the users of the cluster.
type Authorizer interface {
	Allowed(ctx context.Context, user authenticationv1.UserInfo, attributes authorizationv1.ResourceAttributes) (bool, error)
}

// authorize returns nil if the author has all rights.
func (r Reviewer) authorize(
	ctx context.Context, request *admissionv1.AdmissionRequest, needed []right,
) *admissionv1.AdmissionResponse {
	if r.Authorizer == nil {
		return nil
	}
	if len(needed) > maxRights {
		return refused(request, field.ErrorList{field.TooMany(field.NewPath("spec"), len(needed), maxRights)})
	}
	missing, err := r.missing(ctx, request.UserInfo, needed)
	if err != nil {
		return unauthorized(request, http.StatusInternalServerError, metav1.StatusReasonInternalError,
			fmt.Sprintf("checking the rights of user %q failed: %v", request.UserInfo.Username, err))
	}
	if len(missing) == 0 {
		return nil
	}
	return unauthorized(request, http.StatusForbidden, metav1.StatusReasonForbidden,
		explain(request.UserInfo.Username, missing))
}

func unauthorized(
	request *admissionv1.AdmissionRequest, code int32, reason metav1.StatusReason, message string,
) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// missing returns the rights that the user does not have. A right on all objects of a kind makes
// those on single objects unnecessary, so it is checked first.
func (r Reviewer) missing(ctx context.Context, user authenticationv1.UserInfo, needed []right) ([]right, error) {
	kinds := map[authorizationv1.ResourceAttributes]bool{}
	for _, n := range needed {
		kinds[ofKind(n.attributes)] = false
	}
	if err := r.ask(ctx, user, kinds); err != nil {
		return nil, err
	}
	objects := map[authorizationv1.ResourceAttributes]bool{}
	for _, n := range needed {
		if n.attributes.Name != "" && !kinds[ofKind(n.attributes)] {
			objects[n.attributes] = false
		}
	}
	if err := r.ask(ctx, user, objects); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(needed, func(n right) bool {
		return kinds[ofKind(n.attributes)] || objects[n.attributes]
	}), nil
}

func ofKind(attributes authorizationv1.ResourceAttributes) authorizationv1.ResourceAttributes {
	attributes.Name = ""
	return attributes
}

// ask sets the values of a map to whether the user has the right.
func (r Reviewer) ask(
	ctx context.Context, user authenticationv1.UserInfo, questions map[authorizationv1.ResourceAttributes]bool,
) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentRequests)
	for _, attributes := range slices.Collect(maps.Keys(questions)) {
		group.Go(func() error {
			allowed, err := r.Authorizer.Allowed(ctx, user, attributes)
			mu.Lock()
			defer mu.Unlock()
			questions[attributes] = allowed
			return err
		})
	}
	return group.Wait()
}

// explain names the missing rights and prints the command that grants them.
func explain(user string, missing []right) string {
	var text strings.Builder
	text.WriteString("Akri would act for the author of the Configuration, who must have the rights for it:")
	for i, m := range missing {
		if i == maxProblems {
			fmt.Fprintf(&text, "\n- and %d more", len(missing)-maxProblems)
			break
		}
		a := m.attributes
		resource := a.Resource
		if a.Group != "" {
			resource += "." + a.Group
		}
		if a.Name != "" {
			resource += fmt.Sprintf(" %q", a.Name)
		}
		fmt.Fprintf(&text, "\n- %s: user %q cannot %s %s in namespace %q", m.path, user, a.Verb, resource, a.Namespace)
	}
	text.WriteString("\nA user with these rights can grant them with:\nkubectl apply -f - <<'EOF'\n")
	text.WriteString(roles(user, missing[:min(len(missing), maxProblems)]))
	text.WriteString("EOF")
	return text.String()
}

// roles returns the Roles and RoleBindings that give the user the rights, in YAML.
func roles(user string, missing []right) string {
	rules := map[string][]rbacv1.PolicyRule{}
	var namespaces []string
	for _, m := range missing {
		a := m.attributes
		if rules[a.Namespace] == nil {
			namespaces = append(namespaces, a.Namespace)
		}
		rule := rbacv1.PolicyRule{Verbs: []string{a.Verb}, APIGroups: []string{a.Group}, Resources: []string{a.Resource}}
		if a.Name != "" {
			rule.ResourceNames = []string{a.Name}
		}
		rules[a.Namespace] = append(rules[a.Namespace], rule)
	}
	var documents []string
	for _, namespace := range namespaces {
		meta := metav1.ObjectMeta{Name: roleName(user, rules[namespace]), Namespace: namespace}
		documents = append(documents, toYAML(rbacv1.Role{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: meta, Rules: rules[namespace],
		}), toYAML(rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}, ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{subject(user)},
		}))
	}
	return strings.Join(documents, "---\n")
}

func toYAML(object any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		panic(err) // a type without a JSON form
	}
	return string(text)
}

// roleName depends on the user and the rules, so that a Role never replaces another one.
func roleName(user string, rules []rbacv1.PolicyRule) string {
	hash := sha256.Sum256([]byte(fmt.Sprintf("%q %v", user, rules)))
	return "akri-author-" + hex.EncodeToString(hash[:4])
}

func subject(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
}
