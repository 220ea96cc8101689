package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/tools/kubectl-akri/check"
	"akri.sh/tools/kubectl-akri/internal/print"
	"akri.sh/tools/kubectl-akri/internal/probe"
)

// errChecks is the error of a check that has failed, for the exit code.
var errChecks = errors.New("a check has failed")

// defaultNamespace is that of the documentation.
const defaultNamespace = "akri-system"

func (o *options) check() *cobra.Command {
	var device string
	var yes bool
	c := o.withOutput(&cobra.Command{
		Use:   "check",
		Short: "Checks that Akri works, or that it can be installed. The exit code is 1 if a check fails.",
		Long: `Checks that Akri works or, if it is not installed, that it can be installed into the namespace of
--namespace (akri-system). The exit code is 1 if a check fails. Warnings do not change it.

It changes nothing. It sends an invalid Configuration as a dry run, which the webhook must refuse,
and compares the objects of the Helm release with those of the cluster.

With --probe it runs a Pod that requests the device, or any device of the Configuration, in the
namespace of --namespace. It states before what it runs, and deletes the Pod afterwards. The Pod uses
an image that is on the node, has no token, ends after a minute at the latest, and removes no other
Pods. If only one slot is free, the command asks before it takes it.`,
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

			var probed []check.Result
			if device != "" {
				if probed, err = runProbe(c, client, snapshot, namespace, device, yes); err != nil {
					return err
				}
			}
			results, err := o.checkInstallation(c.Context(), client, snapshot, namespace)
			if err != nil {
				return err
			}

			results = append(results, probed...)
			err = print.Value(c.OutOrStdout(), o.output, results, func(w io.Writer, _ bool) { print.Checks(w, results) })
			if err == nil && check.HasFailed(results) {
				err = errChecks
			}
			return err
		},
	})
	c.Flags().StringVar(&device, "probe", "", "Run a Pod with this device, or with any device of this Configuration.")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask before --probe takes the last free slot.")
	return c
}

// checkInstallation checks the installation, or the namespace to install into if there is none.
func (o *options) checkInstallation(ctx context.Context, client *cluster.Client, s *explain.Snapshot, namespace string) ([]check.Result, error) {
	if o.overrides.Context.Namespace == "" {
		namespace = defaultNamespace
	}
	if len(s.Deployments) > 0 {
		namespace = s.Deployments[0].Namespace
	}

	facts, err := factsOf(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	if facts.NodeRestriction, err = o.nodeRestriction(ctx, s); err != nil {
		return nil, err
	}
	if facts.Release, err = readRelease(ctx, client, namespace); err != nil {
		return nil, err
	}
	if err := readResources(ctx, client, &facts); err != nil {
		return nil, err
	}
	facts.Review = review(ctx, client, s.Webhooks)
	return check.Of(s, facts), nil
}

// runProbe runs a Pod with the device.
func runProbe(c *cobra.Command, client *cluster.Client, s *explain.Snapshot, namespace, device string, yes bool) ([]check.Result, error) {
	plan, err := probe.Of(s, namespace, device)
	if errors.Is(err, probe.ErrNoSlot) {
		return []check.Result{check.NotProbed(device)}, nil
	}
	if err != nil {
		return nil, err
	}
	out := c.ErrOrStderr()
	fmt.Fprintf(out, "Running a Pod of the image %s with %s on %s for at most %s.\n", plan.Image, plan.Resource, plan.Node, probe.Deadline)
	if plan.Free == 1 && !yes {
		fmt.Fprintln(out, "It takes the last free slot until it ends.")
		if err := confirm(c.InOrStdin(), out); err != nil {
			return nil, err
		}
	}
	verdict, took, err := probe.Run(c.Context(), client, plan)
	if err != nil {
		return nil, err
	}
	return []check.Result{check.Probed(plan.Resource, plan.Node, verdict, took)}, nil
}

func factsOf(ctx context.Context, client *cluster.Client, namespace string) (check.Facts, error) {
	facts := check.Facts{
		Namespace: namespace,
		Policies:  map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{},
		Bindings:  map[string]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	}
	version, err := client.Kubernetes.Discovery().ServerVersion()
	if err != nil {
		return facts, fmt.Errorf("read the version of the API server: %w", err)
	}
	facts.Version = version.GitVersion
	object, err := client.Kubernetes.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err == nil:
		facts.Enforced = object.Labels["pod-security.kubernetes.io/enforce"]
	case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
		return facts, fmt.Errorf("read namespace: %w", err)
	}
	if err := readSecurity(ctx, client, &facts); err != nil {
		return facts, err
	}
	for _, resource := range []struct{ group, name string }{
		{"apiextensions.k8s.io", "customresourcedefinitions"},
		{"rbac.authorization.k8s.io", "clusterroles"},
		{"rbac.authorization.k8s.io", "clusterrolebindings"},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
		{"apps", "daemonsets"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: resource.group, Resource: resource.name},
		}}
		review, err := client.Kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return facts, fmt.Errorf("review rights: %w", err)
		}
		if !review.Status.Allowed {
			facts.MissingRights = append(facts.MissingRights, "create "+resource.name)
		}
	}
	return facts, nil
}

// review sends a Configuration as a dry run that the webhook must refuse, and returns the answer.
// It sends none if there is no webhook.
func review(ctx context.Context, client *cluster.Client, webhooks []admissionregistrationv1.ValidatingWebhookConfiguration) *check.Review {
	if len(webhooks) == 0 {
		return nil
	}
	_, err := client.Configurations.In(metav1.NamespaceDefault).Create(ctx, check.Invalid(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return &check.Review{Refusal: err}
}

// readSecurity reads the objects that show how secure an installation is.
func readSecurity(ctx context.Context, client *cluster.Client, facts *check.Facts) error {
	get := func(resource string, read func() error) error {
		switch err := read(); {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err):
			if !slices.Contains(facts.Unreadable, resource) {
				facts.Unreadable = append(facts.Unreadable, resource)
			}
			return nil
		default:
			return fmt.Errorf("read %s: %w", resource, err)
		}
	}
	errs := []error{get("configmaps", func() error {
		object, err := client.Kubernetes.CoreV1().ConfigMaps(facts.Namespace).Get(ctx, check.WeakeningMap, metav1.GetOptions{})
		if err == nil {
			facts.Weakening = map[string]string{}
			maps.Copy(facts.Weakening, object.Data)
		}
		return err
	}), readUpstream(ctx, client, facts), readCA(ctx, client, facts)}

	admission := client.Kubernetes.AdmissionregistrationV1()
	for _, name := range check.PolicyNames() {
		errs = append(errs,
			get("validatingadmissionpolicies", func() error {
				object, err := admission.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
				if err == nil {
					facts.Policies[name] = object
				}
				return err
			}),
			get("validatingadmissionpolicybindings", func() error {
				object, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, name, metav1.GetOptions{})
				if err == nil {
					facts.Bindings[name] = object
				}
				return err
			}))
	}
	return errors.Join(errs...)
}

// readUpstream reads the values of upstream Akri's chart that do not have their effect. Releases of
// Configurations can be in any namespace.
func readUpstream(ctx context.Context, client *cluster.Client, facts *check.Facts) error {
	options := metav1.ListOptions{LabelSelector: check.UpstreamSelector, ResourceVersion: "0"}
	objects, err := client.Kubernetes.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, options)
	if apierrors.IsForbidden(err) {
		objects, err = client.Kubernetes.CoreV1().ConfigMaps(facts.Namespace).List(ctx, options)
	}
	if apierrors.IsForbidden(err) {
		facts.UpstreamUnreadable = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("list configmaps: %w", err)
	}

	for _, object := range objects.Items {
		release := object.Namespace + "/" + object.Labels["app.kubernetes.io/instance"]
		for _, name := range slices.Sorted(maps.Keys(object.Data)) {
			facts.Upstream = append(facts.Upstream, check.UpstreamValue{Release: release, Name: name, Meaning: object.Data[name]})
		}
	}
	return nil
}

// readCA reads the certificates of the CA of instance-writer.
func readCA(ctx context.Context, client *cluster.Client, facts *check.Facts) error {
	secret, err := client.Kubernetes.CoreV1().Secrets(facts.Namespace).Get(ctx, check.CAName, metav1.GetOptions{})
	if err == nil {
		facts.CA.Signs = secret.Data[check.CAKey]
		var configMap *corev1.ConfigMap
		configMap, err = client.Kubernetes.CoreV1().ConfigMaps(facts.Namespace).Get(ctx, check.CAName, metav1.GetOptions{})
		if text, found := configMap.Data[check.CAKey]; err == nil && found {
			facts.CA.Trusted = []byte(text)
		}
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		facts.CA.Unreadable = true
		return nil
	default:
		return fmt.Errorf("read the CA of instance-writer: %w", err)
	}
}
