package adoption_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube/kubetest"
)

const namespace = "default"

// cluster is an API server with the recorded objects, by kind/name.
type cluster struct {
	*testing.T
	client dynamic.Interface
	kinds  map[string]schema.GroupVersionKind
	uids   map[string]types.UID
}

// request is a recorded request of upstream Akri 0.13, its installer or Kubernetes.
type request struct {
	Manager               string
	Create, Apply, Delete map[string]any
	Status                map[string]any
}

// replay creates the nodes and sends the recorded requests.
func replay(t *testing.T, server *kubetest.Server) *cluster {
	t.Helper()
	c := newCluster(t, server)
	for _, r := range requests(t) {
		c.send(r)
	}
	return c
}

// newCluster creates the nodes.
func newCluster(t *testing.T, server *kubetest.Server) *cluster {
	t.Helper()
	client, err := dynamic.NewForConfig(server.Config())
	require.NoError(t, err)
	c := &cluster{t, client, map[string]schema.GroupVersionKind{}, map[string]types.UID{}}
	for _, name := range []string{"node-a", "node-b"} {
		c.node(name)
	}
	return c
}

func requests(t *testing.T) (all []request) {
	t.Helper()
	text, err := os.ReadFile("testdata/akri-0.13.yaml")
	require.NoError(t, err)
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		var r request
		require.NoError(t, yaml.UnmarshalStrict(document, &r), "%s", document)
		all = append(all, r)
	}
}

func (c *cluster) node(name string) {
	c.Helper()
	node := object(map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}})
	nodes := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	created, err := nodes.Create(c.Context(), node, metav1.CreateOptions{})
	require.NoError(c, err)
	created.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T09:00:00Z", "lastHeartbeatTime": "2026-05-01T09:00:00Z",
	}}}
	_, err = nodes.UpdateStatus(c.Context(), created, metav1.UpdateOptions{})
	require.NoError(c, err)
}

func (c *cluster) send(r request) {
	c.Helper()
	switch {
	case r.Create != nil:
		created, err := c.resource(c.owned(r.Create)).Create(c.Context(), c.owned(r.Create), metav1.CreateOptions{FieldManager: r.Manager})
		require.NoError(c, err)
		c.add(created)
		if r.Status != nil {
			created.Object["status"] = r.Status
			_, err := c.resource(created).UpdateStatus(c.Context(), created, metav1.UpdateOptions{FieldManager: "kubelet"})
			require.NoError(c, err)
		}
	case r.Apply != nil:
		config := c.owned(r.Apply)
		text, err := json.Marshal(config)
		require.NoError(c, err)
		applied, err := c.resource(config).Patch(c.Context(), config.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: r.Manager})
		require.NoError(c, err)
		c.add(applied)
	default:
		deleted := object(r.Delete)
		require.NoError(c, c.resource(deleted).Delete(c.Context(), deleted.GetName(), metav1.DeleteOptions{}))
	}
}

func object(fields map[string]any) *unstructured.Unstructured {
	return (&unstructured.Unstructured{Object: fields}).DeepCopy()
}

// owned sets the uids of the owners, which differ in each cluster.
func (c *cluster) owned(fields map[string]any) *unstructured.Unstructured {
	o := object(fields)
	owners := o.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = c.uids[owners[i].Kind+"/"+owners[i].Name]
		require.NotEmpty(c, owners[i].UID, owners[i].Name)
	}
	if len(owners) > 0 {
		o.SetOwnerReferences(owners)
	}
	return o
}

func (c *cluster) add(o *unstructured.Unstructured) {
	key := o.GetKind() + "/" + o.GetName()
	c.kinds[key], c.uids[key] = o.GroupVersionKind(), o.GetUID()
}

func (c *cluster) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return c.client.Resource(resource).Namespace(namespace)
}

// get returns nil if the object does not exist.
func (c *cluster) get(key string) *unstructured.Unstructured {
	c.Helper()
	kind, name, _ := strings.Cut(key, "/")
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(c.kindOf(kind))
	found, err := c.resource(o).Get(c.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c, err)
	return found
}

func (c *cluster) kindOf(kind string) schema.GroupVersionKind {
	for _, recorded := range c.kinds {
		if recorded.Kind == kind {
			return recorded
		}
	}
	c.Fatalf("no %s was recorded", kind)
	return schema.GroupVersionKind{}
}

// all returns the recorded objects that still exist.
func (c *cluster) all() map[string]*unstructured.Unstructured {
	c.Helper()
	found := map[string]*unstructured.Unstructured{}
	for key := range c.kinds {
		if o := c.get(key); o != nil {
			found[key] = o
		}
	}
	return found
}
