package try

import (
	"context"
	"fmt"
	"io"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// Allowed returns an error if the user may not run commands in the Pods. The refusal of an exec
// request has no status that a program can read.
func Allowed(ctx context.Context, client kubernetes.Interface, pods []corev1.Pod) error {
	namespaces := map[string]bool{}
	for i := range pods {
		namespaces[pods[i].Namespace] = true
	}
	for namespace := range namespaces {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods", Subresource: "exec"},
		}}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("review rights: %w", err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("you need the right to create pods/exec in the namespace %s", namespace)
		}
	}
	return nil
}

// NewExec returns an Exec of the cluster. As kubectl does, it uses SPDY if the API server, or a
// proxy in front of it, refuses WebSockets.
func NewExec(client kubernetes.Interface, config *rest.Config) Exec {
	return func(ctx context.Context, pod *corev1.Pod, container string, command []string, in io.Reader, out, problems io.Writer) error {
		request := client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		executor, err := newExecutor(config, request)
		if err != nil {
			return fmt.Errorf("create connection: %w", err)
		}
		// The error is returned. client-go would also log it, and each stream that ends with ctx.
		return executor.StreamWithContext(klog.NewContext(ctx, klog.Logger{}), remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: problems})
	}
}

func newExecutor(config *rest.Config, request *rest.Request) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
