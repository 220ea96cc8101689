// Command akri-attack attacks a running mesh as a Pod and as a stolen node can. It is a process of
// its own, so that a test can run it in the network and with the CPU limit of a Pod.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"akri.sh/integration/attacks"
	"akri.sh/integration/cmd/internal/command"
	"akri.sh/libs/rpc"
)

type options struct {
	Webhook        string            `required:"" help:"Address of the webhook"`
	Foreign        string            `required:"" help:"Configuration in a namespace whose name no response of the webhook or about Instances may contain" placeholder:"NAMESPACE/NAME"`
	Node           string            `and:"node" help:"Name of the stolen node. Empty attacks the webhook only"`
	Writer         string            `and:"node" help:"Address of instance-writer"`
	Reporter       string            `and:"node" help:"Directory with the identity of discovery-operator on the node"`
	Reserver       string            `and:"node" help:"Directory with the identity of device-plugin-host on the node"`
	Victims        []string          `name:"victim" and:"node" help:"Instance of another node" placeholder:"NAMESPACE/NAME"`
	Configurations map[string]string `name:"configuration" and:"node" help:"Name and uid of a Configuration in the namespace default, as NAME=UID"`
	Handlers       []string          `name:"handler" and:"node" help:"Name of a handler that the node claims to have"`
	Marker         string            `and:"node" help:"Text of another node that no response may contain"`
}

func main() {
	var o options
	command.Run("akri-attack",
		"Attacks the webhook without credentials, and instance-writer with the identities of a node. An interrupt ends it and prints the numbers of calls by result as JSON.",
		&o, func(ctx context.Context, _ *kong.Context) error { return o.run(ctx) })
}

func (o options) run(ctx context.Context) error {
	foreign := parseName(o.Foreign)
	webhook := attacks.Webhook{Address: o.Webhook, Foreign: foreign.Name, Namespace: foreign.Namespace}
	node, err := o.node(foreign.Namespace)
	if err != nil {
		return err
	}

	var group sync.WaitGroup
	group.Go(func() { webhook.Run(ctx) })
	if o.Node != "" {
		group.Go(func() { node.Run(ctx) })
	}
	group.Wait()

	results := attacks.Results{
		Webhook: webhook.Counts.All(), Node: node.Counts.All(),
		Leaked: webhook.Leaked.Load() + node.Leaked.Load(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return fmt.Errorf("print results: %w", err)
	}
	return nil
}

// node returns the attack on instance-writer.
func (o options) node(foreign string) (*attacks.Node, error) {
	node := &attacks.Node{Name: o.Node, Configurations: o.Configurations, Handlers: o.Handlers, Marker: o.Marker, Foreign: foreign}
	if o.Node == "" {
		return node, nil
	}
	for _, victim := range o.Victims {
		node.Victims = append(node.Victims, parseName(victim))
	}

	var err error
	if node.Reporter, err = connect(o.Writer, o.Reporter); err != nil {
		return nil, err
	}
	node.Reserver, err = connect(o.Writer, o.Reserver)
	return node, err
}

// parseName returns the name in NAMESPACE/NAME.
func parseName(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// connect connects to instance-writer with the identity of a service.
func connect(address, directory string) (*grpc.ClientConn, error) {
	credentials, err := rpc.Identity{CAFile: directory + "/ca.crt", TokenFile: directory + "/token"}.DialOptions(address)
	if err != nil {
		return nil, err
	}
	return rpc.Dial("passthrough:///"+address, prometheus.NewRegistry(), append(credentials, grpc.WithAuthority("akri-instance-writer"))...)
}
