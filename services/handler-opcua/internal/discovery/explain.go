package discovery

import (
	"context"

	"go.uber.org/zap"

	details "akri.sh/libs/details/opcua"
	"akri.sh/libs/handler"
)

// Explain queries the URLs of the details, and compares the servers with the filter. It connects to
// the same servers as a round of a Poller.
func Explain(ctx context.Context, options Options, request handler.Request) ([]*handler.NearMiss, error) {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return nil, handler.Invalid(err)
	}
	all := parsed
	all.Filter = details.Filter{}
	querying, cancel := handler.HalfTime(ctx)
	defer cancel()
	found, _ := NewPoller(options, all).servers(querying, zap.NewNop())

	var misses []*handler.NearMiss
	for _, server := range found {
		if parsed.Filter.Selects(server.Name) {
			continue
		}
		filter := handler.Filter{Name: "applicationNames", Items: parsed.Filter.Names, Exclude: !parsed.Filter.Include}
		if server.Name != "" {
			filter.Values = []string{server.Name}
		}
		misses = append(misses, handler.MissOf(server.URL, request.Details, []handler.Filter{filter}, func(text string) bool {
			corrected, err := details.Parse(text)
			return err == nil && corrected.Filter.Selects(server.Name)
		}))
	}
	return handler.Join(misses), ctx.Err()
}
