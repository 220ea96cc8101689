package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/console"
)

const (
	// startTimeout is the time for the first lists of the API server.
	startTimeout      = 30 * time.Second
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
)

func (o *options) console() *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use:   "console",
		Short: "Serves pages with the devices on this machine, until it is interrupted.",
		Long: `Serves pages that show the devices and explain why one is missing, until it is interrupted.

Open the printed address in a browser on this machine. It has a secret, so that other users of the
machine cannot open the pages. The pages show what the user of the kubeconfig may see, and change
nothing.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			config, namespace, err := o.restConfig()
			if err != nil {
				return err
			}
			return serveConsole(c.Context(), c.OutOrStdout(), config, namespace, port)
		},
	}
	c.Flags().Uint16Var(&port, "port", 0, "Port on the loopback interface, 0 for any.")
	return c
}

func serveConsole(ctx context.Context, w io.Writer, config *rest.Config, namespace string, port uint16) error {
	cache, err := cache.New(ctx, config, namespace)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("serve console: %w", err)
	}
	token := rand.Text()
	viewer := console.Viewer{Source: cache, Closest: newAnswers(config).closest}
	pages := console.Restricted(func(*http.Request) (console.Viewer, http.Handler) { return viewer, nil })
	group, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler: console.Local(token, pages), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends the streams
	}
	group.Go(func() error { cache.Run(ctx); return nil })
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	group.Go(func() error {
		if err := await(ctx, cache); err != nil {
			return errors.Join(err, listener.Close())
		}
		fmt.Fprintf(w, "Open http://%s/?token=%s in a browser. Interrupt to stop.\n", listener.Addr(), token)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve console: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// await waits for the first lists.
func await(ctx context.Context, cache *cache.Cache) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return cache.Synced(ctx)
}
