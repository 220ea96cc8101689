package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/internal/print"
)

// kinds are the kinds that can be explained, with the short names of their resources.
var kinds = []struct {
	name    string
	aliases []string
	explain func(s *explain.Snapshot, namespace, name string) explain.Explanation
	names   func(s *explain.Snapshot, namespace string) []string
}{
	{"configuration", []string{"configurations", "akric"}, explain.Configuration, configurationNames},
	{"instance", []string{"instances", "akrii", "device"}, explain.Instance, instanceNames},
	{"pod", []string{"pods", "po"}, explain.Pod, podNames},
}

func (o *options) explain() *cobra.Command {
	return o.withOutput(&cobra.Command{
		Use:   "explain (configuration|instance|pod) NAME",
		Short: "Explains why a device is missing or a Pod does not run.",
		Long: `Explains why a device is missing or a Pod does not run.

It follows the chain from the Discovery Handler to the container, marks the first broken link, and
shows its cause and the commands that remedy it.`,
		Example:           "  kubectl akri explain configuration camera\n  kubectl akri explain pod camera-8120fe-pod --namespace default",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: o.completeExplain,
		RunE: func(c *cobra.Command, arguments []string) error {
			kind, name, err := objectOf(arguments)
			if err != nil {
				return err
			}
			for _, k := range kinds {
				if k.name == kind {
					return o.runExplain(c, kind, name, k.explain)
				}
			}
			return nil
		},
	})
}

func (o *options) runExplain(c *cobra.Command, kind, name string, of func(*explain.Snapshot, string, string) explain.Explanation) error {
	snapshot, namespace, err := o.snapshot(c.Context())
	if err != nil {
		return err
	}
	if kind == "pod" && explain.Find(snapshot.Pods, namespace, name) == nil {
		if err := o.addPod(c.Context(), snapshot, namespace, name); err != nil {
			return err
		}
	}

	e := of(snapshot, namespace, name)
	if cause := e.Cause(); cause != nil && cause.ID == explain.NothingMatched && e.Kind == "Configuration" {
		config, _, err := o.restConfig()
		if err != nil {
			return err
		}
		cause.Closest = closest(c.Context(), config, snapshot, explain.Find(snapshot.Configurations, namespace, name))
	}
	return print.Value(c.OutOrStdout(), o.output, e, func(w io.Writer, _ bool) { print.Explanation(w, e) })
}

// addPod adds the Pod if it exists. A snapshot has no Pods that request no device.
func (o *options) addPod(ctx context.Context, snapshot *explain.Snapshot, namespace, name string) error {
	client, _, err := o.connect()
	if err != nil {
		return err
	}
	pod, err := client.Kubernetes.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get Pod: %w", err)
	default:
		snapshot.Pods = append(snapshot.Pods, *pod)
		return nil
	}
}

// objectOf accepts KIND NAME and KIND/NAME.
func objectOf(arguments []string) (kind, name string, err error) {
	if len(arguments) == 1 {
		arguments = strings.SplitN(arguments[0], "/", 2)
	}
	if len(arguments) != 2 || arguments[1] == "" {
		return "", "", fmt.Errorf("name an object: explain (configuration|instance|pod) NAME")
	}
	for _, k := range kinds {
		for _, alias := range append(k.aliases, k.name) {
			if strings.TrimSuffix(strings.ToLower(arguments[0]), ".akri.sh") == alias {
				return k.name, arguments[1], nil
			}
		}
	}
	return "", "", fmt.Errorf("kind %q is unknown: use configuration, instance or pod", arguments[0])
}

func (o *options) completeExplain(c *cobra.Command, arguments []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(arguments) == 0 {
		return []string{"configuration", "instance", "pod"}, cobra.ShellCompDirectiveNoFileComp
	}
	kind, _, err := objectOf([]string{arguments[0], "NAME"})
	if err != nil || len(arguments) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	snapshot, namespace, err := o.snapshot(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, k := range kinds {
		if k.name == kind {
			return k.names(snapshot, namespace), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func configurationNames(s *explain.Snapshot, namespace string) (names []string) {
	for i := range s.Configurations {
		if c := &s.Configurations[i]; c.Namespace == namespace {
			names = append(names, c.Name)
		}
	}
	return names
}

func instanceNames(s *explain.Snapshot, namespace string) (names []string) {
	for i := range s.Instances {
		if instance := &s.Instances[i]; instance.Namespace == namespace {
			names = append(names, instance.Name)
		}
	}
	return names
}

func podNames(s *explain.Snapshot, namespace string) (names []string) {
	for i := range s.Pods {
		if pod := &s.Pods[i]; pod.Namespace == namespace && !explain.IsAkri(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}
