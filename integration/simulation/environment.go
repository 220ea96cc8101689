package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/identitytest"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"

	"akri.sh/integration/mesh"
	"akri.sh/integration/process"
)

const (
	// Namespace of all objects.
	Namespace = identitytest.Namespace

	// defaultMemory is the limit of the container in the chart in MiB.
	defaultMemory = 384
	// parallelRequests is the limit for creating and deleting objects.
	parallelRequests = 8
	nodesPerSubnet   = 250
)

// Options of an Environment.
type Options struct {
	// Nodes is the number of simulated nodes. Without nodes there is no Model.
	Nodes, Replicas int
	// Memory is the limit of each instance-writer in MiB, or 0 for that of the chart.
	Memory int
	// Agent is set if each node has the agent instead of separate services.
	Agent bool
	// Handlers are the names of the Discovery Handlers of each node.
	Handlers []string
	// Flags of each instance-writer.
	Flags []string
	// Progress is called with each step.
	Progress func(format string, arguments ...any)
}

// Environment is an API server with etcd, replicas of instance-writer and simulated nodes.
type Environment struct {
	mesh.Clients
	API     *kubetest.Server
	Writers []*process.Writer
	// Identities are those of the callers of instance-writer.
	Identities *identitytest.Identities
	Nodes      []*Node
	Model      *Model

	dir  string // the files that the kubelets would mount
	stop context.CancelFunc
}

// New starts all but the streams of the nodes.
func New(ctx context.Context, options Options) (e *Environment, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	e = &Environment{Model: NewModel(), stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	options.Progress("starting an API server and %d instance-writer", options.Replicas)
	if e.API, err = kubetest.Start(ctx); err != nil {
		return e, err
	}
	if e.Clients, err = mesh.NewClients(e.API.Config()); err != nil {
		return e, err
	}
	if e.dir, err = os.MkdirTemp("", "akri-identities-"); err != nil {
		return e, fmt.Errorf("create directory: %w", err)
	}
	if e.Identities, err = identitytest.New(ctx, e.Kubernetes, e.dir); err != nil {
		return e, err
	}
	memory := fmt.Sprintf("GOMEMLIMIT=%dMiB", cmp.Or(options.Memory, defaultMemory))
	for range options.Replicas {
		writer, err := process.StartReplica(ctx, e.API, e.Identities, []string{memory}, options.Flags...)
		if err != nil {
			return e, fmt.Errorf("start replica: %w", err)
		}
		e.Writers = append(e.Writers, writer)
	}
	if err = e.Identities.AwaitCA(ctx); err != nil || options.Nodes == 0 {
		return e, err
	}
	options.Progress("creating %d Nodes, and tokens of Pods on each", options.Nodes)
	if err = e.createNodes(ctx, options); err != nil {
		return e, err
	}
	return e, e.Model.Watch(watching, e.Instances)
}

func (e *Environment) createNodes(ctx context.Context, options Options) error {
	var writers []string
	for _, writer := range e.Writers {
		writers = append(writers, writer.Address)
	}
	e.Nodes = make([]*Node, options.Nodes)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for i := range e.Nodes {
		group.Go(func() error {
			e.Nodes[i] = &Node{
				Name:    fmt.Sprintf("node-%04d", i),
				source:  net.IPv4(127, 1, byte(i/nodesPerSubnet), byte(i%nodesPerSubnet+1)),
				writers: writers, handlers: options.Handlers, model: e.Model, stop: func() {},
				devices: map[*akriv0.Configuration]map[string]*discoveryv1.Device{}, refused: map[string]map[string]bool{},
			}
			return e.createNode(ctx, options.Agent, e.Nodes[i])
		})
	}
	return group.Wait()
}

func (e *Environment) createNode(ctx context.Context, agent bool, node *Node) (err error) {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if _, err := e.Kubernetes.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Node: %w", err)
	}
	account, host := identitytest.DiscoveryOperator, identitytest.Files{}
	if agent {
		account = identitytest.Agent
	} else if host, err = e.Identities.Of(ctx, identitytest.DevicePluginHost, node.Name); err != nil {
		return err
	}
	operator, err := e.Identities.Of(ctx, account, node.Name)
	if err != nil {
		return err
	}
	return node.connect(rpc.Identity(operator), rpc.Identity(host))
}

// Configure creates a Configuration.
func (e *Environment) Configure(ctx context.Context, name, handler string, capacity int32) (*akriv0.Configuration, error) {
	created, err := e.Configurations.In(Namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity, DiscoveryHandler: akriv0.DiscoveryHandler{Name: handler}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Configuration: %w", err)
	}
	return created, nil
}

// Delete stops nodes and deletes their Nodes.
func (e *Environment) Delete(ctx context.Context, nodes []*Node) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for _, node := range nodes {
		e.Model.RemoveNode(node.Name)
		group.Go(func() error {
			return errors.Join(node.Stop(), e.Kubernetes.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}))
		})
	}
	return group.Wait()
}

// AwaitAnswers waits until instance-writer has answered all streams that the nodes have opened
// since a time, and returns the time of the last answer.
func AwaitAnswers(ctx context.Context, nodes []*Node, since time.Time) (last time.Time, err error) {
	err = mesh.Await(ctx, "answers to all nodes", func(context.Context) error {
		waiting := 0
		for _, node := range nodes {
			first, latest := node.answers()
			if !first.After(since) {
				waiting++
			}
			if latest.After(last) {
				last = latest
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d nodes have no answer", waiting, len(nodes))
		}
		return nil
	})
	return last, err
}

// Stop stops all processes and the nodes that are left.
func (e *Environment) Stop() error {
	e.stop()
	var errs []error
	for _, node := range e.Nodes {
		if node != nil {
			errs = append(errs, node.Stop())
		}
	}
	for _, writer := range e.Writers {
		errs = append(errs, writer.Stop())
	}
	errs = append(errs, os.RemoveAll(e.dir))
	if e.API != nil {
		e.API.Stop()
	}
	return errors.Join(errs...)
}
