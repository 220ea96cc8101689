package operator

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/rpc"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

const (
	longestWatchPause = time.Second
	statusWithin      = 2 * time.Second
	statusPause       = time.Second
)

// watchHandlers brings the registrar's table to the coordinator. While the registrar is away the last table stands.
func watchHandlers(ctx context.Context, log *zap.Logger, conn *grpc.ClientConn, adopt func([]*registrarv1.Handler)) {
	rpc.Keep(ctx, log, longestWatchPause, func(ctx context.Context, healthy func()) error {
		stream, err := registrarv1.NewRegistrarServiceClient(conn).WatchHandlers(ctx, &registrarv1.WatchHandlersRequest{})
		if err != nil {
			return fmt.Errorf("open handler watch: %w", err)
		}
		for {
			table, err := stream.Recv()
			if err != nil {
				return fmt.Errorf("receive handlers: %w", err)
			}
			healthy()
			adopt(table.GetHandlers())
		}
	})
}

// reportStatuses passes on what the coordinator finds out about handlers. It is told again as long as the table says
// something else; a report that fails is therefore dropped, and asked for anew after a pause.
func reportStatuses(ctx context.Context, log *zap.Logger, conn *grpc.ClientConn, reports <-chan []*registrarv1.HandlerReport, again func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case some := <-reports:
			if err := reportOnce(ctx, conn, some); err != nil {
				log.Debug("handler statuses could not be reported", zap.Error(err), zap.Duration("retry_in", statusPause))
				select {
				case <-ctx.Done():
				case <-time.After(statusPause):
					again()
				}
			}
		}
	}
}

func reportOnce(ctx context.Context, conn *grpc.ClientConn, reports []*registrarv1.HandlerReport) error {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	_, err := registrarv1.NewRegistrarServiceClient(conn).ReportHandlerStatus(ctx, &registrarv1.ReportHandlerStatusRequest{Reports: reports})
	return err
}
