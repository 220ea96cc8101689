package kubetest_test

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

func configuration(name string) *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "debugEcho"}},
	}
}

func TestDefaultCapacityIsOne(t *testing.T) {
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	created, err := client.In("default").Create(t.Context(), configuration("round-trip"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, *created.Spec.Capacity)
	require.Equal(t, "debugEcho", created.Spec.DiscoveryHandler.Name)
}

func TestSchemaValidation(t *testing.T) {
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	zero, value := int32(0), "x"
	for name, c := range map[string]struct {
		change func(*akriv0.ConfigurationSpec)
		want   string
	}{
		"capacity-0":  {func(s *akriv0.ConfigurationSpec) { s.Capacity = &zero }, "spec.capacity in body should be greater than or equal to 1"},
		"no-handler":  {func(s *akriv0.ConfigurationSpec) { s.DiscoveryHandler.Name = "" }, "spec.discoveryHandler.name"},
		"two-brokers": {func(s *akriv0.ConfigurationSpec) { s.BrokerSpec = &akriv0.BrokerSpec{} }, "set exactly one of brokerPodSpec and brokerJobSpec"},
		"two-values": {func(s *akriv0.ConfigurationSpec) {
			s.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "a", Value: &value,
				ValueFrom: &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Name: "s", Key: "k"}}}}
		}, "set value or valueFrom, not both"},
		"no-source": {func(s *akriv0.ConfigurationSpec) {
			s.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "a", ValueFrom: &akriv0.PropertySource{}}}
		}, "set exactly one of secretKeyRef and configMapKeyRef"},
		"bad-property-name": {func(s *akriv0.ConfigurationSpec) {
			s.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "a-b", Value: &value}}
		}, "discoveryProperties[0].name"},
		"handler-command":          {func(s *akriv0.ConfigurationSpec) { s.DiscoveryHandler.Name = "$(touch p)" }, "spec.discoveryHandler.name"},
		"secret-command":           {reading(akriv0.KeyRef{Name: "x$(touch p)", Key: "k"}), "secretKeyRef.name"},
		"secret-with-a-line-break": {reading(akriv0.KeyRef{Name: "x\n", Key: "k"}), "secretKeyRef.name"},
		"namespace-command":        {reading(akriv0.KeyRef{Name: "s", Namespace: "a;b", Key: "k"}), "secretKeyRef.namespace"},
		"no-nodes":                 {onNodes(akriv0.AllowedNodes{}), "set names, matchLabels or both"},
		"node-command":             {onNodes(akriv0.AllowedNodes{Names: []string{"a", "$(b)"}}), "spec.nodes.names[1]"},
		"label-of-kubelet": {onNodes(akriv0.AllowedNodes{MatchLabels: map[string]string{
			"node-restriction.kubernetes.io/site": "a", "kubernetes.io/hostname": "a",
		}}), "spec.nodes.matchLabels: Invalid value: each key must begin with node-restriction.kubernetes.io/, " +
			"because the kubelet of a node can set other labels of its own Node"},
		"key-command": {reading(akriv0.KeyRef{Name: "s", Key: "`k`"}), "secretKeyRef.key"},
	} {
		object := configuration(name)
		c.change(&object.Spec)
		_, err := client.In("default").Create(t.Context(), object, metav1.CreateOptions{})
		require.ErrorContains(t, err, c.want, name)
	}
}

func onNodes(nodes akriv0.AllowedNodes) func(*akriv0.ConfigurationSpec) {
	return func(s *akriv0.ConfigurationSpec) { s.Nodes = &nodes }
}

// reading adds a property from a Secret.
func reading(secret akriv0.KeyRef) func(*akriv0.ConfigurationSpec) {
	return func(s *akriv0.ConfigurationSpec) {
		source := &akriv0.PropertySource{SecretKeyRef: &secret}
		s.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "a", ValueFrom: source}}
	}
}

// Names that exist are accepted.
func TestNamesOfKubernetesAreAccepted(t *testing.T) {
	client, err := kube.Configurations(server.Config())
	require.NoError(t, err)
	for i, secret := range []akriv0.KeyRef{
		{Name: "s", Key: "k"}, {Name: "camera.login-1", Namespace: "cameras-2", Key: "tls.crt"},
		{Name: strings.Repeat("a", 253), Namespace: strings.Repeat("n", 63), Key: "._-" + strings.Repeat("K", 250)},
	} {
		object := configuration("names-" + strconv.Itoa(i))
		object.Spec.DiscoveryHandler.Name = "Vendor.io/bacnet_2"
		reading(secret)(&object.Spec)
		_, err := client.In("default").Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// responses records the media types of the responses, by request.
type responses struct {
	next http.RoundTripper

	mu    sync.Mutex
	types map[string]string
}

func (r *responses) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	verb := request.Method
	if request.URL.Query().Has("watch") {
		verb = "WATCH"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.types[verb+" "+request.URL.Path] = kind
	return response, nil
}

// TestMediaTypes uses each verb with an object of Kubernetes, which is sent as protobuf, and with a
// Configuration, which has only JSON.
func TestMediaTypes(t *testing.T) {
	config, seen := server.Config(), &responses{types: map[string]string{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
	configMaps, err := kube.NewClient[corev1.ConfigMap, corev1.ConfigMapList](config, corev1.SchemeGroupVersion.WithResource("configmaps"))
	require.NoError(t, err)
	metadata, err := kube.NewMetadataClient(config, corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMap")
	require.NoError(t, err)
	configurations, err := kube.Configurations(config)
	require.NoError(t, err)

	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "media-types"}, Data: map[string]string{"key": "value"}}
	useVerbs(t, configMaps.In("default"), configMap)
	useVerbs(t, configurations.In("default"), configuration("media-types"))
	_, err = configMaps.In("default").Create(t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	found, err := metadata.In("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=media-types"})
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	require.Equal(t, "media-types", found.Items[0].Name)

	require.Len(t, seen.types, 2*7)
	for request, kind := range seen.types {
		want := "application/vnd.kubernetes.protobuf"
		if strings.Contains(request, akriv0.Group) {
			want = "application/json"
		}
		require.Equal(t, want, kind, request)
	}
}

// useVerbs creates, reads, changes and deletes the object.
func useVerbs[T kube.Object, L runtime.Object](t *testing.T, client *gentype.ClientWithList[T, L], object T) {
	ctx, name := t.Context(), object.GetName()
	watching, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(t, err)
	defer watching.Stop()
	created, err := client.Create(ctx, object, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, created, (<-watching.ResultChan()).Object)
	read, err := client.Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, created, read)
	_, err = client.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)

	created.SetLabels(map[string]string{"step": "updated"})
	updated, err := client.Update(ctx, created, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, "updated", updated.GetLabels()["step"])
	patched, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"step":"patched"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, "patched", patched.GetLabels()["step"])

	uid := patched.GetUID()
	require.NoError(t, client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	_, err = client.Get(ctx, name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
