package command

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"akri.sh/libs/inspect/status"
	"akri.sh/libs/version"
	"akri.sh/tools/kubectl-akri/internal/print"
)

func (o *options) status() *cobra.Command {
	return o.withOutput(&cobra.Command{
		Use: "status", Short: "Shows the services, nodes, Configurations, devices and brokers.", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			snapshot, _, err := o.snapshot(c.Context())
			if err != nil {
				return err
			}
			overview := status.Of(snapshot)
			return print.Value(c.OutOrStdout(), o.output, overview, func(w io.Writer, wide bool) {
				print.Overview(w, overview, version.Version, wide)
			})
		},
	})
}

func (o *options) devices() *cobra.Command {
	return o.withAllNamespaces(o.withOutput(&cobra.Command{
		Use: "devices", Short: "Lists the devices and how many of their slots are held.", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			snapshot, namespace, err := o.snapshot(c.Context())
			if err != nil {
				return err
			}
			devices := status.Devices(snapshot, o.namespace(namespace))
			return print.Value(c.OutOrStdout(), o.output, devices, func(w io.Writer, wide bool) {
				print.Devices(w, devices, time.Now(), wide)
			})
		},
	}))
}

func (o *options) slots() *cobra.Command {
	return o.withAllNamespaces(o.withOutput(&cobra.Command{
		Use: "slots", Short: "Lists the slots of devices, the nodes that hold them and the Pods that use them.", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			snapshot, namespace, err := o.snapshot(c.Context())
			if err != nil {
				return err
			}
			slots := status.Slots(snapshot, o.namespace(namespace))
			return print.Value(c.OutOrStdout(), o.output, slots, func(w io.Writer, wide bool) { print.Slots(w, slots, wide) })
		},
	}))
}

func (o *options) handlers() *cobra.Command {
	return o.withOutput(&cobra.Command{
		Use: "handlers", Short: "Lists the Discovery Handlers that Configurations use, by node.", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			snapshot, _, err := o.snapshot(c.Context())
			if err != nil {
				return err
			}
			handlers := status.Handlers(snapshot)
			return print.Value(c.OutOrStdout(), o.output, handlers, func(w io.Writer, wide bool) {
				print.Handlers(w, handlers, time.Now(), wide)
			})
		},
	})
}
