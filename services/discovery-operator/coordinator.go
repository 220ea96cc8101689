package operator

import (
	"context"
	"time"

	"go.uber.org/zap"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// coordinator brings Configurations and handlers together. Everything that it decides, it decides in one goroutine from
// the state as it is; what happened only tells it where to look.
type coordinator struct {
	log            *zap.Logger
	node           string
	grace          time.Duration
	configurations *kube.Informer[*akriv0.Configuration]
	sessions       discovery.Env
	inbox          *inbox
	views          *views
	reports        chan []*registrarv1.HandlerReport // capacity 1: the newest

	endpoints     endpoints
	handlersKnown bool
	searches      map[string]*search // by key of the Configuration
	nextLook      time.Time          // when everything may look different without anything happening; zero: never
}

// run works until ctx ends, and then ends all streams.
func (c *coordinator) run(ctx context.Context) {
	defer c.stop()
	c.lookAtAll()
	for {
		c.pass(ctx, time.Now())
		c.views.setReady()
		timer := time.NewTimer(c.untilNextLook())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.inbox.wake:
			timer.Stop()
		case <-timer.C:
			c.nextLook = time.Time{}
			c.lookAtAll()
		}
	}
}

// pass does what there is to do.
func (c *coordinator) pass(ctx context.Context, now time.Time) {
	keys, table := c.inbox.take()
	if table != nil {
		c.adopt(table.handlers)
	}
	gone, again := c.endpoints.retire(now)
	c.lookAgain(again)
	if table != nil || gone {
		keys = append(keys, c.configurations.GetStore().ListKeys()...)
	}
	done := map[string]bool{}
	for _, key := range keys {
		for _, related := range c.related(key) {
			if !done[related] {
				done[related] = true
				c.reconcile(ctx, related, now)
			}
		}
	}
	c.reportStatuses(now)
}

// lookAgain asks for a look at everything at a time, if it is one.
func (c *coordinator) lookAgain(at time.Time) { c.nextLook = sooner(c.nextLook, at) }

func (c *coordinator) untilNextLook() time.Duration {
	if c.nextLook.IsZero() {
		return time.Hour
	}
	return time.Until(c.nextLook)
}

func (c *coordinator) adopt(table []*registrarv1.Handler) {
	c.handlersKnown = true
	for _, key := range c.endpoints.adopt(table) {
		for _, one := range c.searches {
			one.kick(key)
		}
	}
}

// reconcile makes one Configuration right.
func (c *coordinator) reconcile(ctx context.Context, key string, now time.Time) {
	configuration, exists := c.configurations.Get(key)
	if !exists {
		c.end(key)
		c.views.remove(key)
		return
	}
	if owner := c.owner(configuration); owner.UID != configuration.UID {
		c.end(key)
		c.views.set(key, inventory.Taken(configuration, owner))
		return
	}
	search := c.search(ctx, key, queryOf(configuration))
	if search.since.IsZero() && c.handlersKnown {
		search.since = now
	}
	sources := search.sources()
	graceEnds := search.since.Add(c.grace)
	early := now.Before(graceEnds)
	if c.handlersKnown && len(sources) == 0 && early {
		c.lookAgain(graceEnds)
	}
	c.views.set(key, inventory.Build(inventory.Facts{
		Node: c.node, Configuration: configuration, Sources: sources,
		Registered: c.endpoints.names(), HandlersKnown: c.handlersKnown, Early: early,
		Former: c.views.get(key).Names(),
	}))
}

// search brings the streams of a Configuration up to date.
func (c *coordinator) search(ctx context.Context, key string, query discovery.Query) *search {
	known := c.searches[key]
	if known != nil && (known.query.UID != query.UID || known.query.Handler != query.Handler) {
		c.end(key) // another Configuration, or other handlers: what was found has no bearing on it
		known = nil
	}
	if known == nil {
		known = &search{
			env: c.sessions, endpoints: &c.endpoints, notify: func() { c.inbox.configurationChanged(key) },
			query: query, streams: map[endpointKey]stream{},
		}
		c.searches[key] = known
	}
	known.update(ctx, query)
	return known
}

// end stops the streams of a Configuration.
func (c *coordinator) end(key string) {
	if known := c.searches[key]; known != nil {
		known.stop()
		c.sessions.Metrics.Forget(known.query.Name)
		delete(c.searches, key)
	}
}

func (c *coordinator) stop() {
	for key := range c.searches {
		c.end(key)
	}
}

func (c *coordinator) lookAtAll() {
	for _, key := range c.configurations.GetStore().ListKeys() {
		c.inbox.configurationChanged(key)
	}
}

// reportStatuses hands over what the registrar should know.
func (c *coordinator) reportStatuses(now time.Time) {
	reports, again := c.endpoints.reports(now)
	c.lookAgain(again)
	select {
	case <-c.reports: // out of date
	default:
	}
	if len(reports) > 0 {
		c.reports <- reports
	}
}
