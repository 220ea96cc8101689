package requirements_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/requirements"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const (
	configurations = "configurations." + akriv0.Group
	instances      = "instances." + akriv0.Group
)

// cluster changes the CustomResourceDefinitions of the API server.
type cluster struct {
	*testing.T

	client   *kube.Client[*apiextensions.CustomResourceDefinition, *apiextensions.CustomResourceDefinitionList]
	requests rest.Interface
	reader   *requirements.Reader
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	resource := apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions")
	client, err := kube.NewClient[apiextensions.CustomResourceDefinition, apiextensions.CustomResourceDefinitionList](
		server.Config(), resource)
	require.NoError(t, err)
	requests, err := discovery.NewDiscoveryClientForConfig(server.Config())
	require.NoError(t, err)
	return cluster{t, client, requests.RESTClient(), requirements.NewReader(requests.RESTClient())}
}

// change changes a definition. The function returns its former spec.
func (c cluster) change(name string, change func(*apiextensions.CustomResourceDefinitionSpec)) apiextensions.CustomResourceDefinitionSpec {
	c.Helper()
	var former apiextensions.CustomResourceDefinitionSpec
	kubetest.Edit(c, c.client.In(""), name, func(crd *apiextensions.CustomResourceDefinition) {
		crd.Spec.DeepCopyInto(&former)
		change(&crd.Spec)
	})
	return former
}

// awaitStorage waits until the API server can list the objects of a definition.
func (c cluster) awaitStorage(name string) {
	c.Helper()
	resource, _, _ := strings.Cut(name, ".")
	require.EventuallyWithT(c, func(t *assert.CollectT) {
		path := "/apis/" + akriv0.GroupVersion.String() + "/" + resource
		require.NoError(t, c.requests.Get().AbsPath(path).Do(context.WithoutCancel(c.Context())).Error())
	}, time.Minute, 50*time.Millisecond)
}

// await waits for the answer. The API server publishes a changed definition after some time.
func (c cluster) await(expected ...explain.Requirement) {
	c.Helper()
	require.EventuallyWithT(c, func(t *assert.CollectT) {
		unmet, err := c.reader.Unmet(context.WithoutCancel(c.Context()), nil)
		require.NoError(t, err)
		require.Equal(t, expected, unmet)
	}, time.Minute, 50*time.Millisecond)
}

// TestRandomFields removes random fields of a definition, and gives others another type.
func TestRandomFields(t *testing.T) {
	c := newCluster(t)
	c.await()
	for _, name := range []string{configurations, instances} {
		seed := rand.Uint64()
		t.Logf("%s: seed %d", name, seed)
		var lacks []string
		former := c.change(name, func(spec *apiextensions.CustomResourceDefinitionSpec) {
			d := damage{rand.New(rand.NewPCG(seed, 0)), nil}
			for len(d.lacks) == 0 {
				for _, part := range []string{"spec", "status"} {
					parts := spec.Versions[0].Schema.OpenAPIV3Schema.Properties
					parts[part] = d.fields(part, parts[part])
				}
			}
			lacks = d.lacks
		})
		slices.Sort(lacks)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			unmet, err := c.reader.Unmet(context.WithoutCancel(c.Context()), nil)
			require.NoError(t, err)
			require.Len(t, unmet, 1)
			require.Equal(t, name, unmet[0].Subject.Name)
			require.False(t, unmet[0].Missing)
			require.ElementsMatch(t, lacks, unmet[0].Lacks)
		}, time.Minute, 50*time.Millisecond)
		c.change(name, func(spec *apiextensions.CustomResourceDefinitionSpec) { *spec = former })
		c.await()
	}
}

// TestChangesAtRandomTimes changes a definition before and after the first answers of readers. The
// API server publishes the index of schemas up to a second after the schemas.
func TestChangesAtRandomTimes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pause := func() { <-time.After(time.Duration(random.Int64N(int64(600 * time.Millisecond)))) }
	c := newCluster(t)
	c.await()
	var readers []*requirements.Reader
	for range 10 {
		former := c.change(configurations, func(spec *apiextensions.CustomResourceDefinitionSpec) {
			delete(spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties, "capacity")
		})
		pause()
		reader := requirements.NewReader(c.requests)
		readers = append(readers, reader)
		_, err := reader.Unmet(t.Context(), nil)
		require.NoError(t, err)
		c.change(configurations, func(spec *apiextensions.CustomResourceDefinitionSpec) { *spec = former })
		pause()
	}
	for _, c.reader = range readers {
		c.await()
	}
}

// damage changes fields of a schema, and records what it lacks then.
type damage struct {
	*rand.Rand

	lacks []string
}

func (d *damage) fields(path string, schema apiextensions.JSONSchemaProps) apiextensions.JSONSchemaProps {
	// Rules and keys can name fields that are removed.
	schema.XValidations, schema.XListType, schema.XListMapKeys, schema.Required = nil, nil, nil, nil
	if schema.Items != nil {
		items := d.fields(path+"[]", *schema.Items.Schema)
		schema.Items = &apiextensions.JSONSchemaPropsOrArray{Schema: &items}
	}
	for name, field := range schema.Properties {
		switch at := path + "." + name; {
		case isRemoved(at):
		case field.XPreserveUnknownFields == nil && d.IntN(12) == 0:
			delete(schema.Properties, name)
			d.lacks = append(d.lacks, at)
		case field.Type == "string" && field.Format == "" && d.IntN(12) == 0:
			schema.Properties[name] = apiextensions.JSONSchemaProps{Type: "boolean"}
			d.lacks = append(d.lacks, at+" (boolean instead of string)")
		default:
			schema.Properties[name] = d.fields(at, field)
		}
	}
	return schema
}

// isRemoved reports whether the services do not use the field. Its definition only has a message.
func isRemoved(path string) bool {
	for name := range akriv0.RemovedFields {
		if path == "spec."+name {
			return true
		}
	}
	return false
}

func definition(name string) akriv0.Subject {
	return akriv0.Subject{Kind: explain.SubjectDefinition, Name: name}
}

// TestMissingDefinitions deletes the definitions, and adds that of Configurations with the shape
// that upstream Akri's has: no status.
func TestMissingDefinitions(t *testing.T) {
	c := newCluster(t)
	c.await()
	missing := func(name string) explain.Requirement {
		return explain.Requirement{Subject: definition(name), Missing: true}
	}
	remove := func(name string) *apiextensions.CustomResourceDefinition {
		// The API server deletes a definition only after its next resync if the storage of the
		// objects was not ready at the deletion: the former test has changed the definition.
		c.awaitStorage(name)
		crd, err := c.client.In("").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, c.client.In("").Delete(t.Context(), name, metav1.DeleteOptions{}))
		return &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crd.Spec}
	}
	create := func(crd *apiextensions.CustomResourceDefinition) {
		require.EventuallyWithT(t, func(check *assert.CollectT) { // after the deletion has ended
			_, err := c.client.In("").Create(t.Context(), crd, metav1.CreateOptions{})
			require.NoError(check, err)
		}, time.Minute, 50*time.Millisecond)
	}

	ofInstances := remove(instances)
	c.await(missing(instances))
	ofConfigurations := remove(configurations)
	c.await(missing(configurations), missing(instances))
	require.True(t, (&explain.Installation{Unmet: []explain.Requirement{missing(configurations), missing(instances)}}).NoAPI())

	upstream := ofConfigurations.DeepCopy()
	version := &upstream.Spec.Versions[0]
	version.Subresources = nil
	delete(version.Schema.OpenAPIV3Schema.Properties, "status")
	create(upstream)
	c.await(explain.Requirement{Subject: definition(configurations), Lacks: []string{"status", "the subresource status"}}, missing(instances))

	create(ofInstances)
	c.change(configurations, func(spec *apiextensions.CustomResourceDefinitionSpec) { *spec = ofConfigurations.Spec })
	c.await()
}

// TestMissingObjects deletes random objects that an installation needs. An object that a user may
// not read is not missing for the user.
func TestMissingObjects(t *testing.T) {
	const namespace = "default"
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t)
	core := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
	var needed []akriv0.Subject
	var missing []explain.Requirement
	for i := range 12 {
		object := akriv0.Subject{Kind: []string{"ConfigMap", "Secret", "Service"}[i%3], Namespace: namespace, Name: fmt.Sprintf("object-%d", i)}
		needed = append(needed, object)
		if random.IntN(2) == 0 {
			missing = append(missing, explain.Requirement{Subject: object, Missing: true})
			continue
		}
		meta := metav1.ObjectMeta{Name: object.Name}
		var err error
		switch object.Kind {
		case "ConfigMap":
			_, err = core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		case "Secret":
			_, err = core.Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		case "Service":
			ports := []corev1.ServicePort{{Port: 443}}
			_, err = core.Services(namespace).Create(t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: ports}}, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}

	unmet, err := c.reader.Unmet(t.Context(), needed)
	require.NoError(t, err)
	require.Equal(t, missing, unmet)

	config := rest.CopyConfig(server.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: "guest"}
	guest, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	unmet, err = requirements.NewReader(guest.RESTClient()).Unmet(t.Context(), needed)
	require.NoError(t, err)
	require.Empty(t, unmet)
}
