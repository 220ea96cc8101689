// Package server implements the gRPC service akri.instance.v1.InstanceService.
package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/reconcile"
	"akri.sh/services/instance-writer/internal/reports"
)

// Options of a Server.
type Options struct {
	Cluster    *cluster.Cluster
	Reports    *reports.Store
	Writer     *batch.Writer
	Reconciler *reconcile.Reconciler
	// Reservations counts calls of ReserveSlots by result.
	Reservations *prometheus.CounterVec
	// ReportSeconds observes the time from receiving a report to its outcome.
	ReportSeconds prometheus.Observer
	// Stopping is closed when streams should end.
	Stopping <-chan struct{}
	// ConnectionLost returns a channel that is closed while the API server does not answer. Streams
	// end then, because their data is outdated.
	ConnectionLost func() <-chan struct{}
	Log            *zap.Logger
}

// Server implements instancev1.InstanceServiceServer.
type Server struct {
	instancev1.UnimplementedInstanceServiceServer
	Options

	subscriptions *subscriptions
	claimReads    *kube.RateLimits // by node
}

// New returns a Server.
func New(options Options) *Server {
	for _, result := range results {
		options.Reservations.WithLabelValues(result)
	}
	return &Server{Options: options, subscriptions: newSubscriptions(), claimReads: kube.NewRateLimits(maxNodes, claimReadRate, claimReadBurst)}
}
