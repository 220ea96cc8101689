package instancewriter

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"akri.sh/libs/pki"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	"akri.sh/libs/tracing"
	configurationv1 "akri.sh/proto/akri/configuration/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/libs/limits"
	"akri.sh/services/instance-writer/internal/auth"
	"akri.sh/services/instance-writer/internal/certificates"
	"akri.sh/services/instance-writer/internal/cluster"
	"akri.sh/services/instance-writer/internal/reports"
)

const (
	handshakeTimeout = 10 * time.Second
	maxHeaderBytes   = 32 << 10
	// maxStreams is the number of calls in progress on one connection. Clients wait before they
	// make more.
	maxStreams = 32
	// windowBytes is what a client can send on a stream before it is read. By default gRPC raises
	// it to 16 MiB for fast clients.
	windowBytes = 256 << 10
)

// maxMessageValues is the number of values in a message. A node has 10,000 devices at most, with a
// few properties each. A decoded value takes up to 200 bytes besides its text.
const maxMessageValues = 100_000

// Service accounts of the callers.
const (
	discoveryOperator = "akri-discovery-operator"
	devicePluginHost  = "akri-device-plugin-host"
	draKubeletPlugin  = "akri-dra-kubelet-plugin"
	agent             = "akri-agent"
)

// methods lists who may call a method. Others, such as those of reflection, are refused.
var methods = map[string][]string{
	instancev1.InstanceService_ReportDevices_FullMethodName:                 {discoveryOperator, agent},
	configurationv1.ConfigurationService_WatchConfigurations_FullMethodName: {discoveryOperator, agent},
	instancev1.InstanceService_WatchInstances_FullMethodName:                {devicePluginHost, draKubeletPlugin, agent},
	instancev1.InstanceService_ReserveSlots_FullMethodName:                  {devicePluginHost, draKubeletPlugin, agent},
	instancev1.InstanceService_ReleaseSlots_FullMethodName:                  {devicePluginHost, draKubeletPlugin, agent},
	instancev1.InstanceService_GetResourceClaim_FullMethodName:              {draKubeletPlugin, agent},
}

// endpoint is the gRPC server.
type endpoint struct {
	server       *grpc.Server
	certificate  pki.Source
	certificates *certificates.Manager // nil with certificates from files
	listen       func(net.Listener) net.Listener
}

// endpointFunc returns an endpoint whose first interceptors are those of the options.
type endpointFunc func(
	config Config, env service.Env, restConfig *rest.Config, objects *cluster.Cluster, store *reports.Store, metrics metrics, first ...grpc.ServerOption,
) (*endpoint, error)

// newEndpoint returns a server with TLS, whose callers prove which node they run on.
func newEndpoint(
	config Config, env service.Env, restConfig *rest.Config, objects *cluster.Cluster, store *reports.Store, metrics metrics, first ...grpc.ServerOption,
) (*endpoint, error) {
	if config.ConnectionsPerSource <= 0 || config.MaxMessageBytes <= 0 {
		return nil, errors.New("--connections-per-source and --max-message-bytes: must be positive")
	}
	review, err := auth.NewReviewer(restConfig)
	if err != nil {
		return nil, err
	}
	callers := auth.New(auth.Options{
		Namespace: config.nodeNamespace(), Methods: methods, Review: review, NodeExists: objects.NodeExists,
		PerSource: config.ConnectionsPerSource, Memory: memoryFor(store),
		Refused: metrics.refusedCalls, Log: env.Log,
	})
	objects.Nodes.OnEvent(func(before, after *corev1.Node) {
		if after == nil {
			callers.NodeDeleted(before.Name)
		}
	})
	e := &endpoint{listen: func(listener net.Listener) net.Listener {
		return limits.Listen(listener, limits.Connections{PerSource: config.ConnectionsPerSource}, metrics.refusedConnections)
	}}
	if e.certificate, err = e.certificateSource(config, env, restConfig); err != nil {
		return nil, err
	}
	options := append(first,
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: e.certificate})),
		rpc.Replicated(config.ConnectionAge), grpc.ConnectionTimeout(handshakeTimeout), grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(config.MaxMessageBytes), rpc.MaxValues(maxMessageValues),
		grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(windowBytes),
		grpc.ReadBufferSize(0), // TLS has a buffer
	)
	options = append(append(options, callers.ServerOptions()...), tracing.ServerOptions()...)
	e.server = rpc.NewServer(env.Log, env.Metrics, options...)
	return e, nil
}

// reportBytes returns how much of the memory limit reports may have. Instances, which each replica
// holds, and garbage need the rest.
func reportBytes() int {
	if memory := limits.ReadMemory(); memory.Limit > 0 {
		return int(memory.Limit / 4)
	}
	return math.MaxInt
}

// memoryFor returns a function that fails before the process needs more memory than its limit. It
// ends the streams of nodes with large reports before it refuses a node. These try again over new
// connections (rpc.Replicas). Reservations are not refused.
func memoryFor(store *reports.Store) func(node string) error {
	return func(node string) error {
		for memory := limits.ReadMemory(); memory.Exhausted(); memory = limits.ReadMemory() {
			if !store.MakeRoom(node) {
				return fmt.Errorf("this replica needs %d of %d MiB of memory and accepts no more nodes; start more replicas or raise the limit",
					memory.Used>>20, memory.Limit>>20)
			}
			runtime.GC() // the memory of the reports counts until they are collected
		}
		return nil
	}
}

// certificateSource returns the Source of the server certificate, with its readiness and metrics.
func (e *endpoint) certificateSource(config Config, env service.Env, restConfig *rest.Config) (source pki.Source, err error) {
	exported := map[string]func() *x509.Certificate{}
	if config.TLS.Dir != "" {
		source = pki.Dir(config.TLS.Dir)
	} else {
		if err := config.TLS.Validate(); err != nil {
			return nil, fmt.Errorf("--tls-lifetime: %w", err)
		}
		secret := cache.NewObjectName(config.Namespace, config.TLS.Name)
		configMap := cache.NewObjectName(config.nodeNamespace(), config.TLS.Name)
		issuer := pki.Issuer{Name: "akri instance-writer", DNSNames: config.dnsNames(), Lifetimes: config.TLS.Lifetimes}
		e.certificates, err = certificates.New(restConfig, secret, configMap, issuer, env.Log)
		if err != nil {
			return nil, err
		}
		env.Metrics.MustRegister(e.certificates.Existence()...)
		source, exported["ca"] = e.certificates.Certificate(), e.certificates.Signer
	}
	exported["server"] = source.Leaf
	env.Health.AddReadiness("certificate", source.Ready)
	env.Metrics.MustRegister(pki.Expiry(
		"Expiry of certificates in seconds since 1970 (server: of the gRPC server, ca: the one that signed it).", exported))
	return source, nil
}

func (c Config) nodeNamespace() string { return cmp.Or(c.NodeNamespace, c.Namespace) }

// dnsNames are the names by which clients reach the Service, and localhost for port forwarding.
func (c Config) dnsNames() []string {
	qualified := c.TLS.Service + "." + c.Namespace
	return []string{c.TLS.Service, qualified, qualified + ".svc", qualified + ".svc.cluster.local", "localhost"}
}

func (e *endpoint) serve(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	if e.certificates != nil {
		group.Go(func() error { e.certificates.Run(ctx); return nil })
	}
	group.Go(func() error { return rpc.Serve(ctx, e.server, e.listen(listener)) })
	return group.Wait()
}
