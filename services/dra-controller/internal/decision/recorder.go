package decision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/resources"
	"akri.sh/services/dra-controller/internal/controller"
	"akri.sh/services/dra-controller/internal/desired"
)

const (
	// probeTimeout is that of one API server.
	probeTimeout = 5 * time.Second
	// serviceProbes is the number of connections through the Service if no API server can be
	// reached by its address.
	serviceProbes = 5
	// serviceName is the name of the Service of the API servers, and of its EndpointSlice.
	// tlsName is in their certificates.
	serviceName = "kubernetes"
	tlsName     = serviceName + ".default.svc"

	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Options of a Recorder.
type Options struct {
	REST   *rest.Config
	Cache  controller.Cache
	Record *resources.Record
	// Identity is that of this process in the record.
	Identity string
	// Interval is the time between two probes of the API servers.
	Interval time.Duration
	// Timeout is the time after which device plugins are recorded if the API servers differ.
	Timeout time.Duration
	Log     *zap.Logger
}

// Recorder decides if nothing is recorded. It runs in the leader.
type Recorder struct {
	Options

	endpoints *kube.Client[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
	// undecided is the wait for equal answers, and message the difference.
	undecided grace.Wait
	message   string
}

// NewRecorder returns a Recorder. It sends no request.
func NewRecorder(options Options) (*Recorder, error) {
	endpoints, err := kube.NewClient[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](
		options.REST, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"))
	if err != nil {
		return nil, err
	}
	return &Recorder{Options: options, endpoints: endpoints}, nil
}

// Run records a decision whenever there is none, until ctx ends. The cache must be synced.
func (r *Recorder) Run(ctx context.Context) {
	kube.Loop{
		Objects: kube.Informers{r.Record}, Changed: r.Record.Changed, Reconcile: r.reconcile,
		Timeout: 2*probeTimeout + serviceProbes*(r.Interval+probeTimeout), FirstRetry: firstRetry, MaxRetry: maxRetry,
		Log: r.Log.Warn, Failed: "recording how Pods get devices failed",
	}.Run(ctx)
}

// reconcile never changes a record: the update fails if the ConfigMap has changed since it was
// read.
func (r *Recorder) reconcile(ctx context.Context) (time.Duration, error) {
	current, err := r.Record.Current()
	if err != nil {
		return 0, err
	}
	if current.Data[akriv0.ResourcesKey] != "" {
		r.undecided, r.message = grace.Wait{}, ""
		return kube.MaxWait, nil
	}

	decision := r.decide(ctx)
	if decision.Resources == "" {
		return r.Interval, nil
	}
	update := current.DeepCopy()
	update.Data = decision.data(r.Identity, time.Now())
	if err := r.Record.Update(ctx, update); err != nil {
		return 0, err
	}
	r.Log.Info("decided how Pods get devices", zap.String("resources", decision.Resources),
		zap.String("reason", decision.Reason), zap.String("message", decision.Message))
	return kube.MaxWait, nil
}

func (r *Recorder) decide(ctx context.Context) Decision {
	in := Input{Instances: r.Cache.Instances.List(), Nodes: map[string]*corev1.Node{}}
	for _, node := range r.Cache.Nodes.List() {
		in.Nodes[node.Name] = node
	}
	if len(in.Instances) == 0 {
		in.Answers = r.answers(ctx)
	}
	now := time.Now()
	in.Over = !r.undecided.Since.IsZero() && r.undecided.Over(now)

	decision := Decide(in)
	if decision.Resources == "" && r.undecided.Since.IsZero() {
		r.undecided = grace.Wait{
			Awaited: "the API servers have the same features", Since: now, For: r.Timeout, Then: "device plugins are recorded",
		}
	}
	if decision.Resources == "" && decision.Message != r.message {
		r.Log.Warn("the API servers differ; devices are not offered until they agree, or until device plugins are recorded",
			zap.String("message", decision.Message), zap.Time("until", r.undecided.Until()))
	}
	r.message = decision.Message
	return decision
}

// answers returns the answers of all API servers. If none can be reached by its address, for
// example because a provider has a proxy before them, the answers are those of several connections
// through the Service.
func (r *Recorder) answers(ctx context.Context) []Answer {
	addresses, err := r.addresses(ctx)
	if err != nil {
		return []Answer{{Server: "the Service " + serviceName, Err: err}}
	}
	answers := make([]Answer, len(addresses))
	var group sync.WaitGroup
	for i, address := range addresses {
		group.Go(func() { answers[i] = r.probe(ctx, address) })
	}
	group.Wait()
	for _, answer := range answers {
		if _, answered := errors.AsType[*apierrors.StatusError](answer.Err); answered || answer.Err == nil {
			return answers
		}
	}

	answers = nil
	for range serviceProbes {
		answers = append(answers, r.probe(ctx, ""))
		select {
		case <-ctx.Done():
			return answers
		case <-time.After(r.Interval):
		}
	}
	return answers
}

// addresses returns the addresses of all API servers, which each of them adds to the EndpointSlice.
func (r *Recorder) addresses(ctx context.Context) (addresses []string, _ error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	slice, err := r.endpoints.In(metav1.NamespaceDefault).Get(ctx, serviceName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the addresses of the API servers: %w", err)
	}
	for _, port := range slice.Ports {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				addresses = append(addresses, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return addresses, nil
}

// probe returns the answer of the API server with the address, or of any that the Service chooses
// for a new connection if it is empty.
func (r *Recorder) probe(ctx context.Context, address string) Answer {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer := Answer{Server: address}
	if address == "" {
		answer.Server = "one behind the Service " + serviceName
	}
	answer.Features, answer.Err = r.readFeatures(ctx, address)
	if apierrors.IsNotFound(answer.Err) {
		answer.Err = nil // it does not serve the API, so that it has no feature
	}
	return answer
}

func (r *Recorder) readFeatures(ctx context.Context, address string) (desired.Features, error) {
	config, transport, err := connection(r.REST, address)
	if err != nil {
		return desired.Features{}, err
	}
	defer transport.CloseIdleConnections()
	version := resourcev1.SchemeGroupVersion
	classes, err := kube.NewClient[resourcev1.DeviceClass, resourcev1.DeviceClassList](config, version.WithResource("deviceclasses"))
	if err != nil {
		return desired.Features{}, err
	}
	slices, err := kube.NewClient[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](config, version.WithResource("resourceslices"))
	if err != nil {
		return desired.Features{}, err
	}
	return controller.ReadFeatures(ctx, classes, slices)
}

// connection returns a configuration with a transport of its own, without HTTP/2: its requests, one
// after the other, use one connection, to one API server.
func connection(config *rest.Config, address string) (*rest.Config, *http.Transport, error) {
	config = rest.CopyConfig(config)
	if address != "" {
		config.Host, config.ServerName = "https://"+address, tlsName
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("configure TLS: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment, DialContext: config.Dial}
	if config.Proxy != nil {
		transport.Proxy = config.Proxy
	}
	config.Transport, config.TLSClientConfig, config.Proxy, config.Dial = transport, rest.TLSClientConfig{}, nil, nil
	return config, transport, nil
}
