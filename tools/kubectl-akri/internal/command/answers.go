package command

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
)

// answerAge is the time for which the console shows the same closest devices, because a page that
// follows the cluster is made many times. It is shorter if there are none: nodes can have been too
// slow.
const (
	answerAge = time.Minute
	emptyAge  = 10 * time.Second
)

// answers has the devices that came closest to the details of Configurations. It asks for them once
// at a time.
type answers struct {
	ask func(ctx context.Context, s *explain.Snapshot, c *akriv0.Configuration) []trial.Group

	mu   sync.Mutex
	last map[question]answer
}

// question is all that the devices depend on.
type question struct{ namespace, name, handler, details string }

type answer struct {
	groups []trial.Group
	until  time.Time
}

func newAnswers(config *rest.Config) *answers {
	return &answers{last: map[question]answer{}, ask: func(ctx context.Context, s *explain.Snapshot, c *akriv0.Configuration) []trial.Group {
		return closest(ctx, config, s, c)
	}}
}

// closest is for console.Viewer. A viewer that closes the page does not interrupt it, because
// others get the answer, too.
func (a *answers) closest(ctx context.Context, s *explain.Snapshot, c *akriv0.Configuration) []trial.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(_ question, old answer) bool { return !time.Now().Before(old.until) })
	q := question{c.Namespace, c.Name, c.Spec.DiscoveryHandler.Name, c.Spec.DiscoveryHandler.DiscoveryDetails}
	if known, exists := a.last[q]; exists {
		return known.groups
	}

	groups := a.ask(context.WithoutCancel(ctx), s, c)
	age := answerAge
	if len(groups) == 0 {
		age = emptyAge
	}
	a.last[q] = answer{groups, time.Now().Add(age)}
	return groups
}
