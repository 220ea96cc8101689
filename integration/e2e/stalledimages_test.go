package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// silentRegistry runs brokers with images of a registry that does not answer one of the nodes.
func silentRegistry(t *testing.T) {
	stalledImage(t, "e2e-silent", "5998", func(*images, *http.Request) bool { return true })
}

// stalledLayer runs brokers with images of a registry that stops in the middle of a layer.
func stalledLayer(t *testing.T) {
	stalledImage(t, "e2e-layer", "5999", (*images).isLayer)
}

// stalledImage checks that other nodes and other devices are not affected, that conditions name the
// image, and that the broker runs when the registry answers again.
func stalledImage(t *testing.T, name, port string, stalls func(*images, *http.Request) bool) {
	stalled, other := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	images := newImages(t, name, "sample-broker", port)
	answer := images.serve(t, stalled, func(r *http.Request) bool { return stalls(images, r) })
	images.serve(t, other, func(*http.Request) bool { return false })
	pulled := strings.Replace(broker, "ghcr.io/akri-mesh/sample-broker:dev", images.ref, 1)
	started := time.Now()
	apply(t, echoConfiguration(name, 2, pulled, "foo0"))

	awaitReadyPod(t, "default", other.Name()+"-"+name+"-8120fe-pod")
	message := awaitCondition(t, "default", name, akriv0.ConditionBrokersRunning, metav1.ConditionFalse, akriv0.ReasonNotStarted)
	require.Contains(t, message, `container "broker" waits for its image "`+images.ref+`"`)
	t.Logf("the image is named %s after the Configuration was created", time.Since(started).Round(time.Second))
	explained, err := kubectlAkri(t.Context(), "explain", "configuration", name)
	require.NoError(t, err)
	require.Contains(t, explained, images.ref)

	apply(t, echoConfiguration(name+"-beside", 2, broker, "foo0"))
	awaitBrokers(t, "default", name+"-beside", 2)
	pods, err := akri.BrokersOf(t.Context(), "default", name)
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == stalled.Name() && mesh.Ready(&pod) }))

	answer()
	answered := time.Now()
	awaitBrokers(t, "default", name, 2)
	t.Logf("the broker is ready %s after the registry answers", time.Since(answered).Round(time.Second))
	awaitVerdict(t, "default", name, akriv0.ConditionBrokersWorking, "Works")
}

// stalledService replaces the Pods of a handler, or of the agent, by those of an image whose
// registry does not answer one of the nodes. Devices and brokers stay, explain names the image, and
// the handler runs when the registry answers.
func stalledService(t *testing.T) {
	const name = "e2e-stalled"
	onlyLong(t, "containerd waits before it asks the registry again")
	apply(t, echoConfiguration(name, 2, broker, "foo0"))
	awaitBrokers(t, "default", name, 2)
	before := observe(t, name)
	component := selected.process("handler-debug-echo")
	images := newImages(t, name, component, "5999")
	stalled, other := akri.Cluster.Nodes()[0], akri.Cluster.Nodes()[1]
	answer := images.serve(t, stalled, func(*http.Request) bool { return true })
	images.serve(t, other, func(*http.Request) bool { return false })

	rollout := replaceImage(t, component, images.ref)
	await(t, "image in the explanation", func(ctx context.Context) error {
		explained, err := kubectlAkri(ctx, "explain", "configuration", name)
		if err == nil && !strings.Contains(explained, `waits for its image "`+images.ref) {
			err = errors.New(explained)
		}
		return err
	})
	require.Equal(t, before, observe(t, name))

	answer()
	answered := time.Now()
	rollout("status", "--timeout=2m")
	t.Logf("%s runs %s after the registry answers", component, time.Since(answered).Round(time.Second))
	awaitVerdict(t, "default", name, akriv0.ConditionDevicesWorking, "Works")
	require.Equal(t, before, observe(t, name))
}

// replaceImage sets the image of a DaemonSet of Akri until the end of the test. The result runs
// kubectl rollout.
func replaceImage(t *testing.T, component, ref string) (rollout func(arguments ...string)) {
	t.Helper()
	found, err := akri.Kubernetes.AppsV1().DaemonSets(mesh.Namespace).List(t.Context(), ofService(component))
	require.NoError(t, err)
	require.Len(t, found.Items, 1)
	daemonSet, container := "daemonset/"+found.Items[0].Name, found.Items[0].Spec.Template.Spec.Containers[0].Name
	kubectl := func(arguments ...string) {
		_, err := akri.Kubectl(context.WithoutCancel(t.Context()), "", append(arguments, "--namespace", mesh.Namespace)...)
		require.NoError(t, err)
	}
	rollout = func(arguments ...string) {
		kubectl(append([]string{"rollout", arguments[0], daemonSet}, arguments[1:]...)...)
	}

	kubectl("set", "image", daemonSet, container+"="+ref)
	t.Cleanup(func() {
		rollout("undo")
		rollout("status", "--timeout=2m")
	})
	return rollout
}

// images is a registry with one image, which no node has.
type images struct {
	registry http.Handler
	// port is that of the registries on the loopback interfaces of the nodes, for which containerd
	// requires no TLS.
	port string
	// ref is the name of the image on each node on which serve was called.
	ref string
	// layer is the digest of a layer of several megabytes.
	layer string
}

// newImages returns a registry with an image of the project, and a layer that no node has.
func newImages(t *testing.T, name, component, port string) *images {
	t.Helper()
	files, err := mesh.ImageFiles("")
	require.NoError(t, err)
	at := slices.IndexFunc(files, func(file string) bool { return path.Base(file) == component+".tar" })
	require.GreaterOrEqual(t, at, 0)
	image, err := tarball.ImageFromPath(files[at], nil)
	require.NoError(t, err)
	// containerd does not count the first megabyte as progress, without which a pull has no limit.
	layer, err := random.Layer(8<<20, types.DockerLayer)
	require.NoError(t, err)
	layerDigest, err := layer.Digest()
	require.NoError(t, err)
	image, err = mutate.AppendLayers(image, layer)
	require.NoError(t, err)

	digest, err := image.Digest()
	require.NoError(t, err)
	i := &images{
		registry: registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		port:     port,
		ref:      fmt.Sprintf("localhost:%s/%s:%s", port, name, digest.Hex[:12]),
		layer:    layerDigest.String(),
	}
	i.push(t, "/v2/"+name, digest.Hex[:12], image)
	return i
}

// push writes the image to the repository, which is a path of the registry.
func (i *images) push(t *testing.T, repository, tag string, image v1.Image) {
	t.Helper()
	blob := func(digest v1.Hash, content io.Reader) {
		i.send(t, http.MethodPost, repository+"/blobs/uploads/?digest="+digest.String(), "application/octet-stream", content)
	}
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, layer := range layers {
		digest, err := layer.Digest()
		require.NoError(t, err)
		content, err := layer.Compressed()
		require.NoError(t, err)
		blob(digest, content)
	}
	digest, err := image.ConfigName()
	require.NoError(t, err)
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	blob(digest, bytes.NewReader(config))

	manifest, err := image.RawManifest()
	require.NoError(t, err)
	mediaType, err := image.MediaType()
	require.NoError(t, err)
	i.send(t, http.MethodPut, repository+"/manifests/"+tag, string(mediaType), bytes.NewReader(manifest))
}

func (i *images) send(t *testing.T, method, target, contentType string, content io.Reader) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, target, content)
	request.Header.Set("Content-Type", contentType)
	response := httptest.NewRecorder()
	i.registry.ServeHTTP(response, request)
	require.Equal(t, http.StatusCreated, response.Code, "%s %s: %s", method, target, response.Body)
}

// serve serves the registry on the node until the test ends. Requests that stall get no response,
// or the first half of the layer, until answer is called, and those that have begun never.
func (i *images) serve(t *testing.T, node cluster.Node, stalls func(*http.Request) bool) (answer func()) {
	t.Helper()
	listener, err := node.Listen(t.Context(), "127.0.0.1:"+i.port)
	require.NoError(t, err)
	var answers atomic.Bool
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers.Load() || !stalls(r) {
			i.registry.ServeHTTP(w, r)
			return
		}
		if i.isLayer(r) {
			i.serveHalf(w, r)
		}
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return func() { answers.Store(true) }
}

// serveHalf sends the first half of a response.
func (i *images) serveHalf(w http.ResponseWriter, r *http.Request) {
	whole := httptest.NewRecorder()
	i.registry.ServeHTTP(whole, r)
	maps.Copy(w.Header(), whole.Header())
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
}

func (i *images) isLayer(r *http.Request) bool {
	return r.Method == http.MethodGet && path.Base(r.URL.Path) == i.layer
}
