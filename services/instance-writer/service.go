// Package instancewriter is the only writer of Instances and of Configuration status. It merges the
// reports of the nodes, assigns slots and streams Instances to the nodes. Any number of replicas
// may run at once.
package instancewriter

import (
	"context"
	"fmt"
	"maps"
	"net"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/scrape"
	"akri.sh/libs/pki"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/services/instance-writer/internal/batch"
	"akri.sh/services/instance-writer/internal/catalog"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/names"
	"akri.sh/services/instance-writer/internal/properties"
	"akri.sh/services/instance-writer/internal/reconcile"
	"akri.sh/services/instance-writer/internal/reports"
	"akri.sh/services/instance-writer/internal/server"
)

// resourcesAuto is the value of --resources with which the cluster decides.
const resourcesAuto = "auto"

// Config of the service.
type Config struct {
	kube.Flags

	Address              string        `help:"Address of the gRPC server. Callers use TLS and send a service account token." default:":9443" placeholder:"HOST:PORT"`
	ConnectionAge        time.Duration `help:"Age at which connections are closed, so that nodes spread over the replicas. 0: never." default:"10m"`
	ShutdownDelay        time.Duration `help:"Time to serve after the signal to stop, until the Service routes to other replicas only." default:"2s"`
	NodeGrace            time.Duration `help:"Time that a node may be not ready before its devices are removed." default:"5m"`
	ReportGrace          time.Duration `help:"Time that a node may be without a report stream before the status of its Configurations shows it. 0: never." default:"1m"`
	Namespace            string        `help:"Namespace of the Service, of the Secret with the CA and of the Lease with the nodes that report." default:"default"`
	NodeNamespace        string        `help:"Namespace of the service accounts of callers and of the ConfigMap with the CA certificates. Empty: that of --namespace." placeholder:"NAME"`
	ConnectionsPerSource int           `help:"Maximum number of connections of one IP address." default:"64"`
	MaxMessageBytes      int           `help:"Maximum size of a request." default:"4194304"`
	Resources            string        `help:"auto: the cluster decides how Pods get devices, nodes receive it with their Instances, and no Instance is created before. Empty: the flags of the services of nodes state it." enum:",auto" default:""`
	TLS                  TLSConfig     `embed:"" prefix:"tls-"`
	Metrics              scrape.Config `embed:"" prefix:"metrics-"`
}

// TLSConfig selects the server certificate.
type TLSConfig struct {
	Dir     string `help:"Directory with tls.crt and tls.key, which are read at each handshake. Empty: certificates of a CA that instance-writer makes itself." placeholder:"DIR"`
	Service string `help:"Name of the Service in the certificates." default:"akri-instance-writer"`
	Name    string `help:"Name of the Secret with the CA and of the ConfigMap with the CA certificates." default:"akri-ca"`

	pki.Lifetimes `embed:"" prefix:"lifetime-"`
}

// Service is a replica of instance-writer.
type Service struct {
	config     Config
	log        *zap.Logger
	cluster    *cluster.Cluster
	reconciler *reconcile.Reconciler
	catalog    *catalog.Catalog
	names      *names.Record
	endpoint   *endpoint
	stopping   chan struct{}
	synced     chan struct{}
}

// New returns a Service. It opens no connection.
func New(config Config, env service.Env) (*Service, error) {
	return newService(config, env, newEndpoint)
}

// newService is New with a function that returns the endpoint, so that tests can serve callers
// without identity.
func newService(config Config, env service.Env, newEndpoint endpointFunc) (*Service, error) {
	restConfig, err := config.RESTConfig(env.Log)
	if err != nil {
		return nil, err
	}
	metrics := newMetrics(env.Metrics)
	objects, err := newCluster(config, env, restConfig, metrics)
	if err != nil {
		return nil, err
	}
	store, writer := reports.New(reportBytes()), batch.NewWriter(objects, metrics.batch)
	api, err := properties.NewAPIServer(restConfig)
	if err != nil {
		return nil, err
	}

	changed := changesOf(objects)
	values := properties.NewStore(env.Log, api, changed)
	var reconciler *reconcile.Reconciler
	namesChanged := func() { changed.Notify(); reconciler.NamesChanged() }
	record, err := names.New(restConfig, config.Namespace, objects.Configurations, namesChanged, env.Log)
	if err != nil {
		return nil, err
	}
	env.Metrics.MustRegister(record.Existence())

	reconciler = reconcile.New(reconcile.Options{
		Cluster: objects, Reports: store, Writer: writer, NameTaken: record.Taken, Grace: config.NodeGrace, ReportGrace: config.ReportGrace,
		DeviceChanges: metrics.deviceChanges, Log: env.Log,
	})
	if config.ReportGrace > 0 {
		env.Metrics.MustRegister(reportingNodes(reconciler.ReportingNodes))
	}
	objects.Informers = append(objects.Informers, record.Informers()...)
	configurations := catalog.New(objects.Configurations.List, objects.ConfigurationRevision, record.Names, values, changed)

	stopping := make(chan struct{})
	instanceServer := server.New(server.Options{
		Cluster: objects, Reports: store, Writer: writer, Reconciler: reconciler, Reservations: metrics.reservations, ReportSeconds: metrics.reportSeconds,
		Stopping: stopping, ConnectionLost: objects.ConnectionLost, Log: env.Log,
	})
	objects.Instances.OnEvent(instanceServer.InstanceChanged)
	sendResources(objects, reconciler, instanceServer)

	s := &Service{
		config: config, log: env.Log, cluster: objects, reconciler: reconciler, catalog: configurations, names: record,
		stopping: stopping, synced: make(chan struct{}),
	}
	if s.endpoint, err = newEndpoint(config, env, restConfig, objects, store, metrics, s.waitForCaches()...); err != nil {
		return nil, err
	}
	s.register(instanceServer)

	// The metrics name Configurations of all namespaces.
	if err := scrape.Enable(config.Metrics, env, restConfig, s.endpoint.certificate); err != nil {
		return nil, err
	}
	return s, nil
}

// newCluster returns the objects of the API server, with the metrics and the readiness that follow
// from them.
func newCluster(config Config, env service.Env, restConfig *rest.Config, metrics metrics) (*cluster.Cluster, error) {
	objects, err := cluster.New(restConfig, config.Namespace, metrics.apiWrites)
	if err != nil {
		return nil, err
	}

	if config.Resources == resourcesAuto {
		if err := objects.FollowRecord(restConfig); err != nil {
			return nil, err
		}
		env.Metrics.MustRegister(objects.Record.Existence())
	}
	env.Metrics.MustRegister(instances(objects.Instances.List), slotCount(objects.Instances.List), conditions(objects.Configurations.List))
	env.Health.AddReadiness("api-server", objects.Ready)
	return objects, nil
}

// register adds the services to the gRPC server.
func (s *Service) register(instances *server.Server) {
	instancev1.RegisterInstanceServiceServer(s.endpoint.server, instances)
	configurationv1.RegisterConfigurationServiceServer(s.endpoint.server, &server.ConfigurationServer{
		Catalog: s.catalog, Labels: s.cluster.NodeLabels, Stopping: s.stopping, ConnectionLost: s.cluster.ConnectionLost,
	})
}

// sendResources sends nodes how their Pods get devices when the record of it, if the cluster has
// one, or the node changes.
func sendResources(objects *cluster.Cluster, reconciler *reconcile.Reconciler, nodes *server.Server) {
	if objects.Record == nil {
		return
	}

	objects.Record.OnChange(func(string) { reconciler.Decided(); nodes.ResourcesChanged("") })
	objects.Nodes.OnEvent(func(_, after *corev1.Node) {
		if after != nil {
			nodes.ResourcesChanged(after.Name)
		}
	})
}

// changesOf notifies of changes of the Configurations that nodes receive.
func changesOf(objects *cluster.Cluster) broadcast.Signal {
	changed := broadcast.NewSignal()
	objects.Configurations.OnEvent(func(_, _ *akriv0.Configuration) { changed.Notify() })
	objects.Nodes.OnEvent(func(before, after *corev1.Node) {
		if before == nil || after == nil || !maps.Equal(before.Labels, after.Labels) {
			changed.Notify()
		}
	})
	return changed
}

// Run serves until ctx ends. Calls are answered once the caches are complete.
func (s *Service) Run(ctx context.Context) error {
	listener, err := rpc.Listen(ctx, s.log, s.config.Address)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	return s.Serve(ctx, listener)
}

// Serve is Run with a listener, which it closes.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	// The reconciler stops after the gRPC servers, so that running calls are answered.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, stopServing := service.Delay(ctx, s.config.ShutdownDelay)
	defer stopServing()
	endStreams := context.AfterFunc(serving, func() { close(s.stopping) })
	defer endStreams()
	var group errgroup.Group
	group.Go(func() error { s.cluster.Run(background); return nil })
	group.Go(func() error {
		defer stop()
		servers, serving := errgroup.WithContext(serving)
		servers.Go(func() error {
			if err := kube.WaitForSync(ctx, s.cluster); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("start: %w", err)
			}
			group.Go(func() error { s.reconciler.Run(background); return nil })
			group.Go(func() error { s.catalog.Run(background); return nil })
			group.Go(func() error { s.names.Run(background); return nil })
			close(s.synced)
			return nil
		})
		servers.Go(func() error { return s.endpoint.serve(serving, listener) })
		return servers.Wait()
	})
	return group.Wait()
}

// waitForCaches returns interceptors that delay calls until the caches are complete. The nodes make
// their connections meanwhile: after a restart a thousand handshakes take as long as the caches.
func (s *Service) waitForCaches() []grpc.ServerOption {
	wait := func(ctx context.Context) (context.Context, error) {
		select {
		case <-s.synced:
			return ctx, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-s.stopping:
			return nil, status.Error(codes.Unavailable, "stopping")
		}
	}
	// These interceptors call a function before each call.
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(middleware.UnaryServerInterceptor(wait)),
		grpc.ChainStreamInterceptor(middleware.StreamServerInterceptor(wait)),
	}
}
