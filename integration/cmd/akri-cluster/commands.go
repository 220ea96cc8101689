package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
)

type commands struct {
	Dir string `help:"Directory of all state." default:"${dir}" env:"AKRI_CLUSTER_DIR" type:"path"`

	Up         up            `cmd:"" help:"Start a cluster, or the stopped parts of one, and wait until it is ready."`
	Down       down          `cmd:"" help:"Stop the cluster and remove everything that it created, also after a crash."`
	Status     status        `cmd:"" help:"Print the nodes and their states."`
	Load       load          `cmd:"" help:"Load docker-archive tar files on all nodes."`
	Kubeconfig kubeconfig    `cmd:"" help:"Print the path of a kubeconfig with all rights."`
	Kubectl    kubectl       `cmd:"" help:"Run kubectl against the cluster."`
	Binaries   buildBinaries `cmd:"" help:"Build only the third-party binaries (takes minutes the first time) and print their directory."`
}

type up struct {
	Nodes  []string `help:"Names of the nodes (default: node-a,node-b)."`
	Images []string `help:"docker-archive tar files to load." type:"existingfile"`
}

func (u *up) Run(ctx context.Context, cli *commands) error {
	start := time.Now()
	c, err := cluster.Up(ctx, cluster.Config{Dir: cli.Dir, Nodes: u.Nodes, Images: u.Images, Progress: printer()})
	if err != nil {
		return err
	}
	fmt.Printf("The cluster is ready after %s. Use it with:\n\n  export KUBECONFIG=%s\n", time.Since(start).Round(100*time.Millisecond), c.Kubeconfig())
	return nil
}

type down struct{}

func (*down) Run(ctx context.Context, cli *commands) error { return cluster.Down(ctx, cli.Dir) }

type status struct{}

func (*status) Run(_ context.Context, cli *commands) error {
	c, err := cluster.Open(cli.Dir)
	if err != nil {
		return err
	}
	fmt.Printf("kubeconfig  %s\nlogs        %s\n", c.Kubeconfig(), filepath.Join(cli.Dir, "log"))
	for _, n := range c.Nodes() {
		fmt.Printf("%-11s %-12s %-8s %s\n", n.Name(), n.IP(), n.State(), n.Path("/"))
	}
	return nil
}

type load struct {
	Tar []string `arg:"" help:"docker-archive tar files." type:"existingfile"`
}

func (l *load) Run(ctx context.Context, cli *commands) error {
	c, err := cluster.Open(cli.Dir)
	if err != nil {
		return err
	}
	report := printer()
	for _, tar := range l.Tar {
		report("loading " + tar)
		if err := c.LoadImage(ctx, tar); err != nil {
			return err
		}
	}
	return nil
}

type kubeconfig struct{}

func (*kubeconfig) Run(_ context.Context, cli *commands) error {
	c, err := cluster.Open(cli.Dir)
	if err != nil {
		return err
	}
	fmt.Println(c.Kubeconfig())
	return nil
}

type kubectl struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"Arguments of kubectl."`
}

// Run replaces the process by kubectl, with its exit code, terminal and signals.
func (k *kubectl) Run(ctx context.Context, cli *commands) error {
	c, err := cluster.Open(cli.Dir)
	if err != nil {
		return err
	}
	cmd := c.Kubectl(ctx, k.Args...)
	if err := syscall.Exec(cmd.Path, cmd.Args, cmd.Env); err != nil {
		return fmt.Errorf("run kubectl: %w", err)
	}
	return nil
}

type buildBinaries struct {
	Names []string `arg:"" optional:"" help:"Binaries to build, such as helm (default: all)."`
}

func (p *buildBinaries) Run(ctx context.Context) error {
	dir, err := binaries.Ensure(ctx, printer(), p.Names...)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

// printer prints each step with the time since the start to standard error. Scripts use standard
// output.
func printer() func(string) {
	start := time.Now()
	return func(step string) { fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(start).Seconds(), step) }
}
