// Package server answers the calls of akri.instance.v1.InstanceService.
package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/editor"
	"akri.sh/services/instance-writer/internal/feed"
	"akri.sh/services/instance-writer/internal/reconcile"
	"akri.sh/services/instance-writer/internal/reports"
)

// Config of a Server.
type Config struct {
	Cluster    *cluster.Cluster
	Reports    *reports.Store
	Editor     *editor.Editor
	Reconciler *reconcile.Reconciler
	Feed       *feed.Feed
	// Reservations counts by result.
	Reservations *prometheus.CounterVec
	// Stopping is closed when streams should end.
	Stopping <-chan struct{}
	Log      *zap.Logger
}

// Server implements instancev1.InstanceServiceServer.
type Server struct {
	instancev1.UnimplementedInstanceServiceServer
	Config
}

// New returns a Server.
func New(config Config) *Server {
	for _, result := range results {
		config.Reservations.WithLabelValues(result)
	}
	return &Server{Config: config}
}
