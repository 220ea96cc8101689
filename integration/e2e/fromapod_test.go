package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/devices/netns"
)

// queryService sends a request from the pod's network to the ClusterIP of the Service and returns
// the name of the broker that responds.
func queryService(ctx context.Context, from *corev1.Pod, service string) (string, error) {
	address, dial, err := dialerFrom(ctx, from, service)
	if err != nil {
		return "", err
	}
	// A connection to a pod that has just ended gets no response. The caller retries.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return dial(ctx, address)
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, "80"), nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var body struct{ Pod string }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Pod == "" {
		return "", fmt.Errorf("status %d, pod %q: %w", response.StatusCode, body.Pod, err)
	}
	return body.Pod, nil
}

// networkOf returns the file of the network namespace of a process.
func networkOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// dialerFrom returns the ClusterIP of a Service and a function that connects from the pod's
// network. As in DNS, the name of a Service in another namespace ends with a dot and the namespace.
func dialerFrom(
	ctx context.Context, from *corev1.Pod, service string,
) (address string, dial func(ctx context.Context, address string) (net.Conn, error), err error) {
	name, namespace, _ := strings.Cut(service, ".")
	object, err := akri.Kubernetes.CoreV1().Services(cmp.Or(namespace, from.Namespace)).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	node, err := akri.Cluster.Node(from.Spec.NodeName)
	if err != nil {
		return "", nil, err
	}
	pid, err := node.ContainerPID(ctx, from.Namespace, from.Name, from.Spec.Containers[0].Name)
	if err != nil {
		return "", nil, err
	}
	return object.Spec.ClusterIP, func(ctx context.Context, address string) (net.Conn, error) {
		return dialFrom(ctx, pid, "tcp", address)
	}, nil
}

// connectFrom returns a connection for gRPC from the pod's network to a Service.
func connectFrom(
	ctx context.Context, from *corev1.Pod, service, port string, security credentials.TransportCredentials,
) (*grpc.ClientConn, error) {
	address, dial, err := dialerFrom(ctx, from, service)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+net.JoinHostPort(address, port), grpc.WithTransportCredentials(security), grpc.WithContextDialer(dial))
}

// dialFrom dials in the network namespace of a process.
func dialFrom(ctx context.Context, pid int, network, address string) (conn net.Conn, err error) {
	err = netns.Do(networkOf(pid), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
