package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/rpc"

	"akri.sh/integration/mesh"
)

const (
	caName, caKey = "akri-ca", "ca.crt"
	audience      = "akri-instance-writer"
)

// createChartObjects creates what the chart creates for TLS and tokens: the Secret and the
// ConfigMap of the CA, the Lease of instance-writer and the service accounts of its callers.
func (e *Environment) createChartObjects(ctx context.Context) error {
	client := e.Kubernetes
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: Namespace} }
	create := metav1.CreateOptions{}
	_, secretErr := client.CoreV1().Secrets(Namespace).Create(ctx, &corev1.Secret{ObjectMeta: object(caName)}, create)
	_, configMapErr := client.CoreV1().ConfigMaps(Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: object(caName)}, create)
	_, leaseErr := client.CoordinationV1().Leases(Namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: object(writerService)}, create)
	errs := []error{secretErr, configMapErr, leaseErr}
	for _, account := range []string{DiscoveryOperator, DevicePluginHost, Agent} {
		_, err := client.CoreV1().ServiceAccounts(Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: object(account)}, create)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("create objects of the chart: %w", err)
	}
	return nil
}

func (e *Environment) caFile() string { return filepath.Join(e.dir, caKey) }

// awaitCA waits until instance-writer has published its CA, and writes the file of it.
func (e *Environment) awaitCA(ctx context.Context) error {
	configMaps := e.Kubernetes.CoreV1().ConfigMaps(Namespace)
	return mesh.AwaitObject(ctx, "CA certificates", configMaps, caName, func(configMap *corev1.ConfigMap) error {
		if configMap.Data[caKey] == "" {
			return errors.New("the ConfigMap is empty")
		}
		return os.WriteFile(e.caFile(), []byte(configMap.Data[caKey]), 0o600)
	})
}

// Identity returns the identity of a service on a node: a token that is bound to a Pod of the
// service account on the node.
func (e *Environment) Identity(ctx context.Context, account, node string) (identity rpc.Identity, err error) {
	pod, err := e.Kubernetes.CoreV1().Pods(Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "service", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return identity, fmt.Errorf("create Pod on %s: %w", node, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	created, err := e.Kubernetes.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return identity, fmt.Errorf("create token of Pod %s: %w", pod.Name, err)
	}
	file := filepath.Join(e.dir, pod.Name)
	if err := os.WriteFile(file, []byte(created.Status.Token), 0o600); err != nil {
		return identity, fmt.Errorf("write token: %w", err)
	}
	return rpc.Identity{CAFile: e.caFile(), TokenFile: file}, nil
}
