package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/mesh"
)

const (
	// parallelRequests is the limit for creating and deleting objects.
	parallelRequests = 8
	nodesPerSubnet   = 250
)

// Options of a Cluster.
type Options struct {
	Nodes, Replicas int
	// Memory is the limit of each instance-writer in MiB, or 0 for that of the chart.
	Memory int
	// Agent is set if each node has the agent instead of separate services.
	Agent bool
	// Handlers are the names of the Discovery Handlers of each node.
	Handlers []string
	// Progress is called with each step.
	Progress func(format string, arguments ...any)
}

// Cluster is an API server with etcd, replicas of instance-writer and simulated nodes.
type Cluster struct {
	mesh.Clients
	Writers Writers
	Nodes   []*Node
	Model   *Model

	api        *kubetest.Server
	identities *Identities
	stop       context.CancelFunc
}

// NewCluster starts all but the streams of the nodes.
func NewCluster(ctx context.Context, options Options) (c *Cluster, err error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	c = &Cluster{Model: NewModel(), stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	options.Progress("starting an API server and %d instance-writer", options.Replicas)
	if c.api, err = kubetest.Start(ctx); err != nil {
		return c, err
	}
	if c.Clients, err = mesh.NewClients(c.api.Config()); err != nil {
		return c, err
	}
	if c.identities, err = NewIdentities(ctx, c.Kubernetes); err != nil {
		return c, err
	}
	if c.Writers, err = StartWriters(ctx, c.api, options.Replicas, options.Memory); err != nil {
		return c, err
	}
	if err = c.identities.AwaitCA(ctx); err != nil {
		return c, err
	}
	options.Progress("creating %d Nodes, and tokens of Pods on each", options.Nodes)
	if err = c.createNodes(ctx, options); err != nil {
		return c, err
	}
	return c, c.Model.Watch(watching, c.Instances)
}

func (c *Cluster) createNodes(ctx context.Context, options Options) error {
	c.Nodes = make([]*Node, options.Nodes)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for i := range c.Nodes {
		group.Go(func() (err error) {
			c.Nodes[i], err = c.createNode(ctx, options.Agent, NodeOptions{
				Name:    fmt.Sprintf("node-%04d", i),
				Source:  net.IPv4(127, 1, byte(i/nodesPerSubnet), byte(i%nodesPerSubnet+1)),
				Writers: c.Writers.Addresses(), Handlers: options.Handlers, Model: c.Model,
			})
			return err
		})
	}
	return group.Wait()
}

func (c *Cluster) createNode(ctx context.Context, agent bool, options NodeOptions) (*Node, error) {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: options.Name}}
	if _, err := c.Kubernetes.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create Node: %w", err)
	}
	operator := DiscoveryOperator
	var err error
	if agent {
		operator = Agent
	} else if options.Host, err = c.identities.Of(ctx, DevicePluginHost, options.Name); err != nil {
		return nil, err
	}
	if options.Operator, err = c.identities.Of(ctx, operator, options.Name); err != nil {
		return nil, err
	}
	return NewNode(options)
}

// Configure creates a Configuration.
func (c *Cluster) Configure(ctx context.Context, name, handler string, capacity int32) (*akriv0.Configuration, error) {
	created, err := c.Configurations.In(Namespace).Create(ctx, &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       akriv0.ConfigurationSpec{Capacity: &capacity, DiscoveryHandler: akriv0.DiscoveryHandler{Name: handler}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Configuration: %w", err)
	}
	return created, nil
}

// Delete stops nodes and deletes their Nodes.
func (c *Cluster) Delete(ctx context.Context, nodes []*Node) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelRequests)
	for _, node := range nodes {
		c.Model.RemoveNode(node.Name)
		group.Go(func() error {
			return errors.Join(node.Stop(), c.Kubernetes.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}))
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
			if !node.AnsweredSince(since) {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d nodes have no answer", waiting, len(nodes))
		}
		return nil
	})
	for _, node := range nodes {
		if at := node.Answered(); at.After(last) {
			last = at
		}
	}
	return last, err
}

// Stop stops all processes and the nodes that are left.
func (c *Cluster) Stop() error {
	c.stop()
	var errs []error
	for _, node := range c.Nodes {
		if node != nil {
			errs = append(errs, node.Stop())
		}
	}
	errs = append(errs, c.Writers.Stop())
	if c.identities != nil {
		errs = append(errs, c.identities.Close())
	}
	if c.api != nil {
		c.api.Stop()
	}
	return errors.Join(errs...)
}
