package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"

	"akri.sh/integration/mesh"
)

// rotation renews certificates often, so that all scenarios run with new ones. The kubelet updates
// mounted ConfigMaps within 90 s.
var rotation = []string{
	"instance-writer.env.AKRI_TLS_LIFETIME_SERVER=10s", "instance-writer.env.AKRI_TLS_LIFETIME_PUBLISH=100s",
}

// identity is what a container has mounted to call instance-writer.
type identity struct {
	pid   int
	files rpc.Identity
}

// identityOf returns the identity of a Pod's first container.
func identityOf(t *testing.T, pod *corev1.Pod) identity {
	t.Helper()
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, pod.Spec.Containers[0].Name)
	require.NoError(t, err)
	mounted := fmt.Sprintf("/proc/%d/root/var/run/secrets/akri", pid)
	return identity{pid, rpc.Identity{CAFile: filepath.Join(mounted, "ca.crt"), TokenFile: filepath.Join(mounted, "token")}}
}

func (i identity) token(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(i.files.TokenFile)
	require.NoError(t, err)
	return string(text)
}

// connect connects from the Pod's network to instance-writer at the address.
func (i identity) connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	options, err := i.files.DialOptions(address)
	require.NoError(t, err)
	return i.dial(t, address, options...)
}

func (i identity) dial(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithAuthority("akri-instance-writer"),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialFrom(ctx, i.pid, "tcp", address)
		}))
	conn, err := rpc.Dial("passthrough:///"+address, prometheus.NewRegistry(), options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// watchInstances opens a stream of the Instances on a node and receives the first message.
func watchInstances(ctx context.Context, conn *grpc.ClientConn, node string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := instancev1.NewInstanceServiceClient(conn).WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func writerAddress(t *testing.T) string {
	t.Helper()
	service, err := akri.Kubernetes.CoreV1().Services(mesh.Namespace).Get(t.Context(), "akri-instance-writer", metav1.GetOptions{})
	require.NoError(t, err)
	return net.JoinHostPort(service.Spec.ClusterIP, "9443")
}

// servicePodOn returns the Pod of a service on a node.
func servicePodOn(t *testing.T, service, node string) *corev1.Pod {
	t.Helper()
	for _, pod := range servicePods(t, service) {
		if pod.Spec.NodeName == node {
			return &pod
		}
	}
	require.FailNow(t, "no Pod of "+service+" on "+node)
	return nil
}

// callersOn returns the identities of the services of a node that report and that reserve.
func callersOn(t *testing.T, node string) (reporter, reserver identity) {
	t.Helper()
	return identityOf(t, servicePodOn(t, selected.process("discovery-operator"), node)),
		identityOf(t, servicePodOn(t, selected.process("device-plugin-host"), node))
}

const tenant = `
apiVersion: v1
kind: Pod
metadata:
  name: tenant-with-token
spec:
  containers:
    - name: broker
      image: ghcr.io/akri-mesh/sample-broker:dev
      volumeMounts: [{name: identity, mountPath: /var/run/secrets/akri}]
  volumes:
    - name: identity
      projected:
        sources:
          - serviceAccountToken: {audience: akri-instance-writer, path: token}
`

// untrustedCallers tries to call instance-writer without the right identity.
func untrustedCallers(t *testing.T) {
	apply(t, echoConfiguration("e2e-identity", 2, "", "foo0"))
	const instance = "e2e-identity-8120fe"
	awaitInstances(t, "default", "e2e-identity", instance)
	awaitTotalAllocatable(t, instance, 4)
	apply(t, tenant)
	pod := awaitReadyPod(t, "default", "tenant-with-token")
	reporter, reserver := callersOn(t, "node-a")
	untrusted := identityOf(t, pod)
	untrusted.files.CAFile = reserver.files.CAFile
	address := writerAddress(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	before, refused := instances(t, "default", "e2e-identity"), refusedCalls(t)
	expired := signed(t, reserver.token(t), func(claims map[string]any) {
		claims["exp"] = time.Now().Add(-time.Minute).Unix()
	})
	otherAudience := signed(t, reserver.token(t), func(claims map[string]any) { claims["aud"] = []string{"another"} })
	claims := []*instancev1.SlotClaim{{Namespace: "default", Instance: instance, Index: 0}}
	for name, c := range map[string]struct {
		conn   *grpc.ClientConn
		node   string
		code   codes.Code
		reason string
	}{
		"another service account": {untrusted.connect(t, address), "node-a", codes.PermissionDenied, "UnknownServiceAccount"},
		"another node":            {reserver.connect(t, address), "node-b", codes.PermissionDenied, "OtherNode"},
		"another audience":        {reserver.dialWithToken(t, address, otherAudience), "node-a", codes.Unauthenticated, "WrongAudience"},
		"expired":                 {reserver.dialWithToken(t, address, expired), "node-a", codes.Unauthenticated, "TokenExpired"},
		"no token":                {reserver.dialWithToken(t, address, ""), "node-a", codes.Unauthenticated, "NoToken"},
	} {
		client := instancev1.NewInstanceServiceClient(c.conn)
		// Node services connect again, too, when a connection is not answered in time.
		_, err := client.ReserveSlots(ctx, &instancev1.ReserveSlotsRequest{Node: c.node, Claims: claims}, grpc.WaitForReady(true))
		require.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		_, err = client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: c.node, Claims: claims})
		require.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		require.Equal(t, c.code, status.Code(watchInstances(t.Context(), c.conn, c.node)), name)
		require.Equal(t, c.code, status.Code(report(t, client, c.node, before[0].UID)), name)
		require.Greater(t, refusedCalls(t)[c.reason], refused[c.reason], "%s is counted", name)
		require.Contains(t, writerLogs(t), `"reason":"`+c.reason+`"`, "%s is logged", name)
	}
	require.Equal(t, codes.PermissionDenied, status.Code(report(t, instancev1.NewInstanceServiceClient(reporter.connect(t, address)), "node-b", before[0].UID)))
	err := watchInstances(t.Context(), reserver.dial(t, address, grpc.WithTransportCredentials(insecure.NewCredentials())), "node-a")
	require.Equal(t, codes.Unavailable, status.Code(err), "plain text: %v", err)
	require.Equal(t, before, instances(t, "default", "e2e-identity"), "nothing changes")
	require.NoError(t, watchInstances(t.Context(), reserver.connect(t, address), "node-a"), "the node itself")

	config, err := akri.Cluster.RESTConfig()
	require.NoError(t, err)
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = reserver.token(t)
	node, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = node.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "the API server accepts the token of a node: %v", err)
}

// dialWithToken sends the token unchanged. An empty token sends none.
func (i identity) dialWithToken(t *testing.T, address, token string) *grpc.ClientConn {
	t.Helper()
	options, err := i.files.DialOptions(address)
	require.NoError(t, err)
	authorized := grpc.WithPerRPCCredentials(header{})
	if token != "" {
		authorized = grpc.WithPerRPCCredentials(header{"authorization": "Bearer " + token})
	}
	return i.dial(t, address, options[0], authorized)
}

// header is sent with each call.
type header map[string]string

func (h header) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return h, nil
}

func (h header) RequireTransportSecurity() bool { return true }

// report reports that the node sees no device of the Configuration.
func report(t *testing.T, client instancev1.InstanceServiceClient, node string, uid any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := client.ReportDevices(ctx)
	require.NoError(t, err)
	// If the stream has ended, Recv returns its error.
	_ = stream.Send(&instancev1.ReportDevicesRequest{
		Node: node, Namespace: "default", Configuration: "e2e-identity", ConfigurationUid: fmt.Sprint(uid), Complete: true,
	})
	_, err = stream.Recv()
	return err
}

// signed changes the claims of a token and signs it with the key of the API server.
func signed(t *testing.T, token string, change func(claims map[string]any)) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(akri.Cluster.Kubeconfig()), "pki", "service-account.key"))
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	claims := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&claims))
	change(claims)
	payload, err = json.Marshal(claims)
	require.NoError(t, err)
	content := parts[0] + "." + base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(content))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	require.NoError(t, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return content + "." + base64.RawURLEncoding.EncodeToString(signature)
}

var refusedMetric = regexp.MustCompile(`akri_refused_calls_total\{reason="(\w+)"\} (\d+)`)

// refusedCalls returns the number of refused calls of all replicas by reason.
func refusedCalls(t *testing.T) map[string]int {
	t.Helper()
	total := map[string]int{}
	for _, pod := range servicePods(t, "instance-writer") {
		text, err := akri.Kubernetes.CoreV1().Pods(pod.Namespace).ProxyGet("", pod.Name, "8080", "metrics", nil).DoRaw(t.Context())
		require.NoError(t, err)
		for _, match := range refusedMetric.FindAllStringSubmatch(string(text), -1) {
			count, err := strconv.Atoi(match[2])
			require.NoError(t, err)
			total[match[1]] += count
		}
	}
	return total
}

func writerLogs(t *testing.T) string {
	t.Helper()
	text, err := akri.Kubectl(t.Context(), "", "logs", "--namespace", mesh.Namespace, "--selector", "app.kubernetes.io/component=instance-writer", "--tail=-1")
	require.NoError(t, err)
	return text
}

// rotatedCertificates replaces the CA while a node connects again and again, and while pods with a
// device are deleted. Each connection works, and no stream is closed for a second.
func rotatedCertificates(t *testing.T) {
	_, reserver := callersOn(t, "node-b")
	address := writerAddress(t)
	apply(t, echoConfiguration("e2e-rotate", 2, "", "foo0"))
	awaitTotalAllocatable(t, "e2e-rotate-8120fe", 4)
	apply(t, deployment("rotate", "e2e-rotate-8120fe", 2))
	longest := keepStream(t, reserver.connect(t, address), "node-b")
	secrets := akri.Kubernetes.CoreV1().Secrets(mesh.Namespace)
	first, err := secrets.Get(t.Context(), "akri-ca", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = akri.Kubectl(t.Context(), "", "annotate", "secret", "akri-ca", "--namespace", mesh.Namespace, "akri.sh/rotate=now")
	require.NoError(t, err)
	began, connections, deleted := time.Now(), 0, 0
	for {
		conn := reserver.connect(t, address)
		require.NoError(t, watchInstances(t.Context(), conn, "node-b"), "%d connections in %s", connections, time.Since(began))
		require.NoError(t, conn.Close())
		connections++
		deleted += deleteRunning(t, "rotate", 2)
		current, err := secrets.Get(t.Context(), "akri-ca", metav1.GetOptions{})
		require.NoError(t, err)
		if !bytes.Equal(first.Data["signer.crt"], current.Data["signer.crt"]) && time.Since(began) > 2*time.Minute {
			break
		}
		require.Less(t, time.Since(began), 3*time.Minute, "the CA is not replaced")
		<-time.After(200 * time.Millisecond)
	}
	bundle, err := os.ReadFile(reserver.files.CAFile)
	require.NoError(t, err)
	require.NotEqual(t, string(first.Data["ca.crt"]), string(bundle), "the kubelet has updated the mounted CA certificates")
	require.Less(t, longest(), maxClosed, "a stream was closed")
	require.Greater(t, deleted, 5)
	t.Logf("%d connections and %d deleted pods in %s while certificates were renewed every 7 s and the CA was replaced; a stream was closed for %s at most",
		connections, deleted, time.Since(began).Round(time.Second), longest())
}

// deleteRunning deletes a pod of the workload if all its pods run. It returns the number of deleted
// pods.
func deleteRunning(t *testing.T, app string, replicas int) int {
	t.Helper()
	running, err := runningPods(t.Context(), app)
	require.NoError(t, err)
	if len(running) != replicas {
		return 0
	}
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), running[0].Name, metav1.DeleteOptions{}))
	return 1
}

// keepStream keeps a stream of a node open until the end of the test, as device-plugin-host does.
// longest returns the longest time for which the stream was closed.
func keepStream(t *testing.T, conn *grpc.ClientConn, node string) (longest func() time.Duration) {
	t.Helper()
	require.NoError(t, watchInstances(t.Context(), conn, node), "the first connection")
	var mu sync.Mutex
	closed, most := time.Now(), time.Duration(0) // closed is zero while the stream is open
	set := func(open bool) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case open && !closed.IsZero():
			closed, most = time.Time{}, max(most, time.Since(closed))
		case !open && closed.IsZero():
			closed = time.Now()
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		rpc.Keep(ctx, zap.NewNop(), 2*time.Second, func(ctx context.Context, healthy func()) error {
			stream, err := instancev1.NewInstanceServiceClient(conn).WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node})
			for err == nil {
				if _, err = stream.Recv(); err == nil {
					healthy()
					set(true)
				}
			}
			set(false)
			return err
		})
	}()
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if !closed.IsZero() {
			return max(most, time.Since(closed))
		}
		return most
	}
}

// knownCallers returns a check that all replicas serve a caller that they know from the first
// check. The check needs no API server.
func knownCallers(t *testing.T) (check func()) {
	t.Helper()
	_, reserver := callersOn(t, "node-a")
	replicas := servicePods(t, "instance-writer")
	check = func() {
		for _, replica := range replicas {
			conn := reserver.connect(t, net.JoinHostPort(replica.Status.PodIP, "9443"))
			require.NoError(t, watchInstances(t.Context(), conn, "node-a"))
		}
	}
	check()
	return check
}
