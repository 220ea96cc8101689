// Package instancewriter is the one author of Instances and of Configuration status: it merges what
// nodes report, keeps the truth about slots, and tells each node what concerns it. Any number of
// replicas may run at once.
package instancewriter

import (
	"context"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/editor"
	"akri.sh/services/instance-writer/internal/feed"
	"akri.sh/services/instance-writer/internal/reconcile"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/server"
)

// Config of the service.
type Config struct {
	kube.Flags

	Address       string        `help:"Address to serve on." default:":9090" placeholder:"HOST:PORT"`
	ConnectionAge time.Duration `help:"Age at which a connection ends, so that its node may find another replica; 0: never." default:"10m"`
	NodeGrace     time.Duration `help:"How long a node may be not ready before its devices leave." default:"5m"`
}

// Service is a replica of instance-writer.
type Service struct {
	address    string
	log        *zap.Logger
	cluster    *cluster.Cluster
	reconciler *reconcile.Reconciler
	server     *grpc.Server
	stopping   chan struct{}
}

// New makes a Service; it connects to nothing.
func New(config Config, env service.Env) (*Service, error) {
	access, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	metrics := newMetrics(env.Metrics)
	known, err := cluster.New(access, metrics.writes)
	if err != nil {
		return nil, err
	}
	env.Metrics.MustRegister(counter{known.Instances})
	env.Health.AddReadiness("api-server", known.Ready)
	changes := feed.New()
	heard, edits := reports.New(), editor.New(known, metrics.editor)
	if err := known.OnChange(cluster.Changes{Instance: spread(changes)}); err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(reconcile.Config{Cluster: known, Reports: heard, Editor: edits, Grace: config.NodeGrace, Log: env.Log})
	if err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	calls := rpc.NewServer(env.Log, env.Metrics, rpc.Replicated(config.ConnectionAge))
	instancev1.RegisterInstanceServiceServer(calls, server.Guard{Lost: known.Lost, Server: server.New(server.Config{
		Cluster: known, Reports: heard, Editor: edits, Reconciler: reconciler, Feed: changes, Reservations: metrics.reservations,
		Stopping: stopping, Log: env.Log,
	})})
	return &Service{address: config.Address, log: env.Log, cluster: known, reconciler: reconciler, server: calls, stopping: stopping}, nil
}

// spread tells the watchers of each node that an Instance lists or listed.
func spread(changes *feed.Feed) func(before, after *akriv0.Instance) {
	return func(before, after *akriv0.Instance) {
		for _, instance := range []*akriv0.Instance{before, after} {
			if instance != nil {
				changes.Changed(cluster.Key(instance), instance.Spec.Nodes...)
			}
		}
	}
}

// Run serves until ctx ends. Callers are answered once the state of the cluster is known.
func (s *Service) Run(ctx context.Context) error {
	listener, err := rpc.Listen(ctx, s.address)
	if err != nil {
		return err
	}
	return s.Serve(ctx, listener)
}

// Serve is Run on a listener of the caller's own; it closes it.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	// What acts ends after what asks, so that calls in flight are answered.
	acting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	endStreams := context.AfterFunc(ctx, func() { close(s.stopping) })
	defer endStreams()
	var group errgroup.Group
	group.Go(func() error { s.cluster.Run(acting); return nil })
	group.Go(func() error {
		defer stop()
		if err := s.cluster.Synced(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("start: %w", err)
		}
		group.Go(func() error { return s.reconciler.Run(acting) })
		return rpc.Serve(ctx, s.server, listener)
	})
	return group.Wait()
}
