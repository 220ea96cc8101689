package coordinator

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/rpc"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

const (
	maxWatchDelay = time.Second
	reportTimeout = 2 * time.Second
	reportDelay   = time.Second
)

// watchHandlers receives the registrar's table until ctx ends. While the registrar is down the last
// table is used.
func (c *Coordinator) watchHandlers(ctx context.Context) {
	rpc.Keep(ctx, c.Log, maxWatchDelay, func(ctx context.Context, healthy func()) error {
		stream, err := registrarv1.NewRegistrarServiceClient(c.Registrar).WatchHandlers(ctx, &registrarv1.WatchHandlersRequest{})
		if err != nil {
			return fmt.Errorf("open handler watch: %w", err)
		}
		for {
			table, err := stream.Recv()
			if err != nil {
				return fmt.Errorf("receive handlers: %w", err)
			}
			healthy()
			c.table.Set(table)
		}
	})
}

// CheckDirectories is a liveness check. It fails if a directory with sockets of handlers was
// removed.
func (c *Coordinator) CheckDirectories(ctx context.Context) error {
	table, _ := c.table.Get()
	sockets := map[string]string{} // one in each directory
	for _, handler := range table.GetHandlers() {
		if handler.GetEndpointType() == registrarv1.EndpointType_ENDPOINT_TYPE_UDS {
			sockets[filepath.Dir(handler.GetEndpoint())] = "unix://" + handler.GetEndpoint()
		}
	}
	return rpc.CheckDirectory(slices.Sorted(maps.Values(sockets))...)(ctx)
}

// reportStatuses sends the newest reports to the registrar until ctx ends. It retries with a
// constant delay.
func (c *Coordinator) reportStatuses(ctx context.Context) {
	for {
		reports, next := c.reports.Get()
		var retry <-chan time.Time
		if err := c.report(ctx, reports); err != nil {
			c.Log.Debug("reporting handler statuses failed", zap.Error(err), zap.Duration("retry_in", reportDelay))
			next, retry = nil, time.After(reportDelay)
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-retry:
		}
	}
}

func (c *Coordinator) report(ctx context.Context, reports []*registrarv1.HandlerReport) error {
	if len(reports) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	client := registrarv1.NewRegistrarServiceClient(c.Registrar)
	_, err := client.ReportHandlerStatus(ctx, &registrarv1.ReportHandlerStatusRequest{Reports: reports})
	return err
}
