package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/internal/bundle"
)

func (o *options) bundle() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Writes an archive with the objects and logs of Akri, without secrets, for a report.",
		Long: `Writes an archive with the objects and logs of Akri, for a report.

It reads no Secrets. It masks the values of discoveryProperties, brokerProperties and environment
variables, and what looks like a password or a token. Names of objects, nodes and devices are not
masked: read the archive before you publish it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client, namespace, err := o.connect()
			if err != nil {
				return err
			}
			snapshot, err := client.Snapshot(c.Context(), namespace)
			if err != nil {
				return err
			}
			if file == "-" {
				return bundle.Write(c.Context(), c.Root().OutOrStdout(), client, snapshot, bundleName(time.Now()), time.Now())
			}
			return writeBundle(c.Context(), c.OutOrStdout(), file, client, snapshot)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "File to write, - for the standard output. By default akri-bundle-TIME.tar.gz.")
	return c
}

func bundleName(now time.Time) string { return "akri-bundle-" + now.UTC().Format("20060102-150405") }

func writeBundle(ctx context.Context, w io.Writer, name string, client *cluster.Client, snapshot *explain.Snapshot) error {
	now := time.Now()
	if name == "" {
		name = bundleName(now) + ".tar.gz"
	}
	// It shows the cluster, so only its user may read it.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create archive: %w", err)
	}
	defer file.Close()
	if err := bundle.Write(ctx, file, client, snapshot, bundleName(now), now); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	fmt.Fprintln(w, name)
	return nil
}
