package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
)

// Parts of a spec that can be invalid independently of the others.
const (
	brokerPart               = "spec.brokerSpec"
	instanceServicePart      = "spec.instanceService" // Spec and Metadata
	configurationServicePart = "spec.configurationService"
)

// review holds the problems for which the webhook would refuse a spec. The API server can store
// such a spec while the webhook is not registered, and upstream Akri can have accepted it.
type review struct {
	uid        types.UID
	generation int64
	problems   field.ErrorList
}

// refuses reports whether a part of the spec is invalid. Its desired state is unknown then.
func (r review) refuses(part string) bool {
	return slices.ContainsFunc(r.problems, func(problem *field.Error) bool { return strings.HasPrefix(problem.Field, part) })
}

// specValid returns the condition with the message of the webhook.
func (r review) specValid() metav1.Condition {
	condition := metav1.Condition{
		Type: akriv0.ConditionSpecValid, Status: metav1.ConditionTrue, Reason: akriv0.ReasonAsExpected, Message: "the spec is valid",
	}
	if len(r.problems) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, akriv0.ReasonInvalidSpec
		var messages []string
		for _, problem := range r.problems {
			messages = append(messages, problem.Error())
		}
		condition.Message = strings.Join(messages, "; ")
	}
	return condition
}

// review returns the review of the Configuration. It reads the Configuration from the API server
// once per generation, because the cache has no unknown fields. current is false if the cache is
// outdated: the newer Configuration arrives through the cache.
func (c *Controller) review(ctx context.Context, configuration *akriv0.Configuration) (result review, current bool, err error) {
	key := cluster.Key(configuration.Namespace, configuration.Name)
	stored := func() (review, bool) {
		value, _ := c.reviews.Load(key)
		result, _ := value.(review)
		return result, result.uid == configuration.UID && result.generation == configuration.Generation
	}
	if result, current = stored(); current {
		return result, true, nil
	}
	_, err, _ = c.reviewing.Do(key, func() (any, error) {
		read, raw, err := c.Clients.RawConfiguration(ctx, configuration.Namespace, configuration.Name)
		if err != nil {
			return nil, err
		}
		problems, err := c.Reviewer.Problems(ctx, raw)
		if err != nil {
			return nil, err
		}
		c.reviews.Store(key, review{read.UID, read.Generation, withMalformed(problems, read.Spec.Malformed)})
		return nil, nil //nolint:nilnil // the result is in reviews
	})
	if apierrors.IsNotFound(err) {
		return review{}, false, nil
	}
	if err != nil {
		return review{}, false, fmt.Errorf("review Configuration: %w", err)
	}
	result, current = stored()
	return result, current, nil
}

// withMalformed adds the decoding errors of parts that have no problem, in case that the decoder of
// the webhook accepts more than that of the cache.
func withMalformed(problems field.ErrorList, malformed []akriv0.MalformedField) field.ErrorList {
	for _, m := range malformed {
		if !(review{problems: problems}).refuses(m.Field) {
			problems = append(problems, field.Invalid(field.NewPath(m.Field), field.OmitValueType{}, m.Message))
		}
	}
	return problems
}
