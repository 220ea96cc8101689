// Package command has the commands of kubectl akri. cobra parses the flags, because kubectl
// completes the arguments of plugins with cobra's protocol. client-go has the flags of kubectl for
// the kubeconfig.
package command

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/selector"
	"akri.sh/libs/version"
	"akri.sh/tools/kubectl-akri/internal/print"
)

// options are the flags that several commands have.
type options struct {
	rules         *clientcmd.ClientConfigLoadingRules
	overrides     clientcmd.ConfigOverrides
	output        string
	allNamespaces bool
}

// New returns the command.
func New() *cobra.Command {
	o := &options{rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	root := &cobra.Command{
		Use:           "kubectl-akri",
		Short:         "Shows the devices of Akri, and explains why one is missing.",
		Version:       version.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl akri"},
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			c.SetOut(print.Escaped(c.Root().OutOrStdout()))
			c.SetErr(print.Escaped(c.Root().ErrOrStderr()))
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Kubeconfig file.")
	clientcmd.BindOverrideFlags(&o.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	root.AddCommand(o.explain(), o.status(), o.devices(), o.slots(), o.handlers(), o.watch(), o.try(), o.check(), o.bundle(), o.forget(), o.console())
	return root
}

// withOutput adds -o.
func (o *options) withOutput(c *cobra.Command) *cobra.Command {
	c.Flags().StringVarP(&o.output, "output", "o", "", "Output format: json, yaml or wide.")
	formats := []string{print.JSON, print.YAML, print.Wide}
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if o.output != print.Text && !slices.Contains(formats, o.output) {
			return fmt.Errorf("output format %q is unknown: use json, yaml or wide", o.output)
		}
		return nil
	}
	return c
}

// withAllNamespaces adds -A.
func (o *options) withAllNamespaces(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "List the objects of all namespaces.")
	return c
}

// namespace returns the namespace to show, or nothing for all.
func (o *options) namespace(current string) string {
	if o.allNamespaces {
		return ""
	}
	return current
}

// connect returns a client and the current namespace.
func (o *options) connect() (*cluster.Client, string, error) {
	config, namespace, err := o.restConfig()
	if err != nil {
		return nil, "", err
	}
	client, err := cluster.New(config)
	return client, namespace, err
}

func (o *options) restConfig() (*rest.Config, string, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.rules, &o.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, namespace, nil
}

// snapshot lists the objects and returns the current namespace.
func (o *options) snapshot(ctx context.Context) (*explain.Snapshot, string, error) {
	client, namespace, err := o.connect()
	if err != nil {
		return nil, "", err
	}
	snapshot, err := client.Snapshot(ctx, namespace)
	if err == nil && snapshot.NoAPI() {
		err = cluster.ErrNoAPI
	}
	if err != nil {
		return nil, "", err
	}
	snapshot.Selectors = selector.New()
	return snapshot, namespace, nil
}

// oneArgument is cobra.ExactArgs(1) with an error that shows what to name.
func oneArgument(c *cobra.Command, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("name one object: %s", c.Use)
	}
	return nil
}
