package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
	"akri.sh/tools/kubectl-akri/internal/print"
	"akri.sh/tools/kubectl-akri/internal/try"
)

const (
	defaultTrialTimeout = 20 * time.Second
	maxTrialTimeout     = 5 * time.Minute
	// progressInterval is the time after which try lists the nodes that it waits for.
	progressInterval = 2 * time.Second
)

var (
	// errNoAnswer is the error of a trial without a list of devices.
	errNoAnswer    = errors.New("no node has sent a list of devices")
	errInterrupted = errors.New("interrupted")
)

// trialFlags are the flags of try.
type trialFlags struct {
	rules, urls   []string
	details, node string
	timeout       time.Duration
}

func (o *options) try() *cobra.Command {
	var flags trialFlags
	c := o.withOutput(&cobra.Command{
		Use:   "try HANDLER",
		Short: "Shows what a Discovery Handler would find, without a Configuration.",
		Long: `Shows what a Discovery Handler would find, without a Configuration.

It runs a command in the Pods of discovery-operator or the agent, which calls the handler on the
node. It needs the right to create pods/exec in the namespace of Akri. It changes nothing: no
Instance and no broker is created.`,
		Example: `  kubectl akri try udev --rule 'SUBSYSTEM=="video4linux", ATTRS{idVendor}=="046d"'
  kubectl akri try onvif --node node-a
  kubectl akri try opcua --url opc.tcp://10.1.2.3:4840/
  kubectl akri try http --details details.yaml`,
		Args:              oneArgument,
		ValidArgsFunction: o.completeHandler,
		RunE: func(c *cobra.Command, arguments []string) error {
			request, err := flags.request(c.InOrStdin(), arguments[0])
			if err != nil {
				return err
			}
			return o.runTry(c, request, flags.node)
		},
	})
	c.Flags().StringArrayVar(&flags.rules, "rule", nil, "udev rule, for the handler udev. Can be repeated: a device that matches one of them is found.")
	c.Flags().StringArrayVar(&flags.urls, "url", nil, "URL of an OPC UA server, for the handler opcua. Can be repeated.")
	c.Flags().StringVarP(&flags.details, "details", "f", "", "File with the discoveryDetails, - for the standard input.")
	c.Flags().StringVar(&flags.node, "node", "", "Node to try on. By default all nodes.")
	c.Flags().DurationVar(&flags.timeout, "timeout", defaultTrialTimeout, "Time limit for the first list of a handler.")
	_ = c.RegisterFlagCompletionFunc("node", func(c *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		return o.completeNode(c, nil, toComplete)
	})
	return c
}

// request returns the request of the flags.
func (f trialFlags) request(in io.Reader, handler string) (trial.Request, error) {
	request := trial.Request{Handler: handler, Timeout: f.timeout}
	switch {
	case f.timeout <= 0 || f.timeout > maxTrialTimeout:
		return request, fmt.Errorf("--timeout %s: must be more than 0 and at most %s", f.timeout, maxTrialTimeout)
	case f.rules != nil && handler != "udev":
		return request, fmt.Errorf("--rule is for the handler udev: use --details for %s", handler)
	case f.urls != nil && handler != "opcua":
		return request, fmt.Errorf("--url is for the handler opcua: use --details for %s", handler)
	case f.details != "" && (f.rules != nil || f.urls != nil):
		return request, errors.New("--details has all details: use it without --rule and --url")
	case f.details != "":
		text, err := readDetails(in, f.details)
		request.Details = text
		return request, err
	case handler == "udev" && f.rules == nil:
		return request, errors.New("name a rule, such as --rule 'SUBSYSTEM==\"video4linux\"', or use --details")
	}
	var details any
	switch handler {
	case "udev":
		details = map[string]any{"udevRules": f.rules}
	case "opcua":
		standard := map[string]any{}
		if f.urls != nil {
			standard["discoveryUrls"] = f.urls
		}
		details = map[string]any{"opcuaDiscoveryMethod": map[string]any{"standard": standard}}
	default:
		return request, nil
	}
	text, err := yaml.Marshal(details)
	request.Details = string(text)
	return request, err
}

func readDetails(in io.Reader, file string) (string, error) {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(in) }
	}
	text, err := read()
	if err != nil {
		return "", fmt.Errorf("read details: %w", err)
	}
	return string(text), nil
}

func (o *options) runTry(c *cobra.Command, request trial.Request, node string) error {
	config, namespace, err := o.restConfig()
	if err != nil {
		return err
	}
	client, err := cluster.New(config)
	if err != nil {
		return err
	}
	if o.overrides.Context.Namespace == "" {
		namespace = defaultNamespace
	}
	pods, err := trialPods(c.Context(), client, namespace, node)
	if err != nil {
		return err
	}
	if err := try.Allowed(c.Context(), client.Kubernetes, pods); err != nil {
		return err
	}
	progress := newProgress(c.ErrOrStderr(), pods)
	results, err := try.All(c.Context(), try.NewExec(client.Kubernetes, config), pods, request, progress.finished)
	progress.stop()
	if c.Context().Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	err = print.Value(c.OutOrStdout(), o.output, results, func(w io.Writer, wide bool) { print.Trial(w, results, wide) })
	if err == nil && !slices.ContainsFunc(results, func(result trial.Result) bool { return result.Answered }) {
		err = errNoAnswer
	}
	return err
}

// Limits of the devices that explain shows for a Configuration that no device matches.
const (
	closestTimeout = 1500 * time.Millisecond
	maxClosestPods = 10
)

// closest returns the devices that come close to the details of a Configuration. It returns none if
// the user may not run commands in Pods of Akri, or if the handler does not explain.
func closest(ctx context.Context, config *rest.Config, s *explain.Snapshot, c *akriv0.Configuration) []trial.Group {
	ctx, cancel := context.WithTimeout(ctx, closestTimeout)
	defer cancel()
	pods := closestPods(s, c)
	if len(pods) == 0 {
		return nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil || try.Allowed(ctx, client, pods) != nil {
		return nil
	}
	handler := c.Spec.DiscoveryHandler
	request := trial.Request{Handler: handler.Name, Details: handler.DiscoveryDetails, Timeout: closestTimeout}
	return try.AllClosest(ctx, try.NewExec(client, config), pods, request)
}

// closestPods returns the Pods on nodes with the handler, as far as the status lists them.
func closestPods(s *explain.Snapshot, c *akriv0.Configuration) []corev1.Pod {
	nodes := explain.ActiveNodes(c)
	pods := slices.DeleteFunc(try.Pods(s.Pods), func(pod corev1.Pod) bool {
		return len(nodes) > 0 && !slices.Contains(nodes, pod.Spec.NodeName)
	})
	return pods[:min(len(pods), maxClosestPods)]
}

// trialPods returns the Pods that can try. The namespace is that of Akri, for users who may not
// list the Pods of all namespaces.
func trialPods(ctx context.Context, client *cluster.Client, namespace, node string) ([]corev1.Pod, error) {
	options := cluster.FromCache()
	options.LabelSelector = fmt.Sprintf("%s=%s,%s in (%s)", explain.PartOfLabel, explain.PartOf, explain.ComponentLabel, strings.Join(try.Components, ","))
	list, err := client.Kubernetes.CoreV1().Pods("").List(ctx, options)
	if apierrors.IsForbidden(err) {
		list, err = client.Kubernetes.CoreV1().Pods(namespace).List(ctx, options)
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list the Pods of Akri, whose namespace --namespace can name: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list the Pods of Akri: %w", err)
	}
	pods := try.Pods(list.Items)
	if node == "" && len(pods) > 0 {
		return pods, nil
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
	switch {
	case len(pods) > 0:
		return pods, nil
	case node == "":
		return nil, errors.New("discovery-operator runs on no node")
	default:
		return nil, fmt.Errorf("discovery-operator does not run on the node %q", node)
	}
}

// progress writes the nodes that have no result yet.
type progress struct {
	stopped chan struct{}
	writing sync.WaitGroup

	mu      sync.Mutex
	total   int
	waiting []string
}

func newProgress(w io.Writer, pods []corev1.Pod) *progress {
	p := &progress{stopped: make(chan struct{}), total: len(pods)}
	for i := range pods {
		p.waiting = append(p.waiting, pods[i].Spec.NodeName)
	}
	p.writing.Go(func() { p.write(w) })
	return p
}

func (p *progress) write(w io.Writer) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	last := 0
	for {
		select {
		case <-p.stopped:
			return
		case <-ticker.C:
		}
		if waiting := p.left(); len(waiting) > 0 && len(waiting) != last {
			last = len(waiting)
			fmt.Fprintf(w, "waiting for %d of %d nodes: %s\n", len(waiting), p.total, explain.NodeList(waiting))
		}
	}
}

func (p *progress) left() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.waiting)
}

func (p *progress) finished(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(name string) bool { return name == node })
}

// stop returns when nothing more is written.
func (p *progress) stop() {
	close(p.stopped)
	p.writing.Wait()
}

func (o *options) completeHandler(c *cobra.Command, arguments []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, handler := range catalog.Handlers {
		names = append(names, handler.Name)
	}
	if snapshot, _, err := o.snapshot(c.Context()); err == nil {
		for i := range snapshot.Configurations {
			names = append(names, snapshot.Configurations[i].Spec.DiscoveryHandler.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
