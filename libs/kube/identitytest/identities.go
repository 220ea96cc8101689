// Package identitytest makes identities of services on nodes, for tests with an instance-writer and
// an API server but without the chart and kubelets.
package identitytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Service accounts of the callers of instance-writer.
const (
	DiscoveryOperator = "akri-discovery-operator"
	DevicePluginHost  = "akri-device-plugin-host"
	DRAKubeletPlugin  = "akri-dra-kubelet-plugin"
	Agent             = "akri-agent"
)

const (
	// Namespace of all objects.
	Namespace = "default"

	service       = "akri-instance-writer"
	audience      = "akri-instance-writer"
	caName, caKey = "akri-ca", "ca.crt"
	pollInterval  = 20 * time.Millisecond
)

// Files are those of an identity. They can be converted to rpc.Identity.
type Files struct{ CAFile, TokenFile string }

// Identities are those of the callers of an instance-writer.
type Identities struct {
	kubernetes kubernetes.Interface
	dir        string
}

// New creates what the chart creates for TLS and tokens, if it does not exist: the Secret
// and the ConfigMap of the CA, the Lease of instance-writer and the service accounts of its
// callers. The directory is that of the files which kubelets would mount.
func New(ctx context.Context, client kubernetes.Interface, dir string) (*Identities, error) {
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: Namespace} }
	create := metav1.CreateOptions{}
	_, secretErr := client.CoreV1().Secrets(Namespace).Create(ctx, &corev1.Secret{ObjectMeta: object(caName)}, create)
	_, configMapErr := client.CoreV1().ConfigMaps(Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: object(caName)}, create)
	_, leaseErr := client.CoordinationV1().Leases(Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: object(service)}, create)
	errs := []error{existing(secretErr), existing(configMapErr), existing(leaseErr)}
	for _, account := range []string{DiscoveryOperator, DevicePluginHost, DRAKubeletPlugin, Agent} {
		_, err := client.CoreV1().ServiceAccounts(Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: object(account)}, create)
		errs = append(errs, existing(err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("create objects of the chart: %w", err)
	}
	return &Identities{client, dir}, nil
}

// existing is err unless the object exists.
func existing(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (i *Identities) caFile() string { return filepath.Join(i.dir, caKey) }

// AwaitCA waits until instance-writer has published its CA, and writes the file of it.
func (i *Identities) AwaitCA(ctx context.Context) error {
	var bundle string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		configMap, err := i.kubernetes.CoreV1().ConfigMaps(Namespace).Get(ctx, caName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		bundle = configMap.Data[caKey]
		return bundle != "", nil
	})
	if err != nil {
		return fmt.Errorf("wait for CA certificates: %w", err)
	}
	return os.WriteFile(i.caFile(), []byte(bundle), 0o600)
}

// Of returns the files of the identity of a service on a node: a token that is bound to a Pod of
// the service account on the node.
func (i *Identities) Of(ctx context.Context, account, node string) (files Files, err error) {
	pod, err := i.kubernetes.CoreV1().Pods(Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "service", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return files, fmt.Errorf("create Pod on %s: %w", node, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	created, err := i.kubernetes.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return files, fmt.Errorf("create token of Pod %s: %w", pod.Name, err)
	}
	file := filepath.Join(i.dir, pod.Name)
	if err := os.WriteFile(file, []byte(created.Status.Token), 0o600); err != nil {
		return files, fmt.Errorf("write token: %w", err)
	}
	return Files{CAFile: i.caFile(), TokenFile: file}, nil
}
