package render_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/render"
)

var camera = &akriv0.Instance{
	ObjectMeta: metav1.ObjectMeta{Name: "cam-8120fe", Namespace: "plant"},
	Spec: akriv0.InstanceSpec{
		ConfigurationName: "cam", BrokerProperties: map[string]string{"AKRI_INSTANCE": "property", "URL": "$(AKRI_CONFIGURATION)"},
	},
}

// fill sets all strings in a value, keys of maps included, and gives lists one element.
func fill(value reflect.Value, text func() string) {
	switch kind := value.Kind(); {
	case value.Type() == reflect.TypeFor[metav1.FieldsV1](): // JSON
		return
	case kind == reflect.String:
		value.SetString(text())
	case kind == reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), text)
	case kind == reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0), text)
	case kind == reflect.Map:
		key, element := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, text)
		fill(element, text)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, element)
	case kind == reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				fill(value.Field(i), text)
			}
		}
	}
}

// paths returns the fields that contain the text. Lists have no index.
func paths(t *testing.T, value any, text string) []string {
	t.Helper()
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(encoded, &decoded))
	var found []string
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, element := range v {
				if strings.Contains(key, text) {
					found = append(found, path+" (a key)")
				}
				walk(path+"."+key, element)
			}
		case []any:
			for _, element := range v {
				walk(path, element)
			}
		case string:
			if strings.Contains(v, text) {
				found = append(found, strings.TrimPrefix(path, "."))
			}
		}
	}
	walk("", decoded)
	return found
}

// TestOnlyNamesAreReplaced fills all fields of a Pod: images, paths of the host, service accounts,
// commands and all others stay as they are.
func TestOnlyNamesAreReplaced(t *testing.T) {
	replaced := []string{
		"hostname", "subdomain",
		"volumes.secret.secretName", "volumes.configMap.name", "volumes.persistentVolumeClaim.claimName",
		"volumes.projected.sources.secret.name", "volumes.projected.sources.configMap.name",
	}
	for _, containers := range []string{"containers", "initContainers"} {
		for _, field := range []string{
			"envFrom.secretRef.name", "envFrom.configMapRef.name", "env.valueFrom.secretKeyRef.name", "env.valueFrom.configMapKeyRef.name",
		} {
			replaced = append(replaced, containers+"."+field)
		}
	}
	for name, value := range map[string]string{render.NameOfInstance: "cam-8120fe", render.NameOfConfiguration: "cam"} {
		var spec corev1.PodSpec
		fill(reflect.ValueOf(&spec).Elem(), func() string { return "<" + name + ">" })
		pod := render.Pod(camera, "node-a", &akriv0.BrokerSpec{BrokerPodSpec: &spec}, 0)
		require.ElementsMatch(t, replaced, paths(t, pod.Spec, "<"+value+">"))
		job := render.Job(camera, 1, &batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}})
		require.ElementsMatch(t, replaced, paths(t, job.Spec.Template.Spec, "<"+value+">"))
		require.Contains(t, spec.Hostname, name, "the user's spec changed")
	}
}

func TestSpecsWithoutNamesStay(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z.-]*(\$?\$\((AKRI_NODE|AKRI_SLOT|AKRI_INSTANCE_|akri_instance|URL|)\)|\$\(AKRI_INSTANCE|\$|[{]{2}AKRI_INSTANCE[}]{2})[a-z]*`))
	rapid.Check(t, func(t *rapid.T) {
		var broker akriv0.BrokerSpec
		draw := func() string { return text.Draw(t, "text") }
		fill(reflect.ValueOf(&broker).Elem(), draw)
		before := broker.DeepCopy()

		pod := render.Pod(camera, "node-a", &broker, 0)
		pod.Spec.Affinity, pod.Spec.NodeName = before.BrokerPodSpec.Affinity, before.BrokerPodSpec.NodeName
		require.Equal(t, *before.BrokerPodSpec, pod.Spec)
		for key, value := range before.BrokerPodMetadata.Annotations {
			require.Equal(t, value, pod.Annotations[key])
		}
		job := render.Job(camera, 1, broker.BrokerJobSpec)
		require.Equal(t, before.BrokerJobSpec.Template.Spec, job.Spec.Template.Spec)
		require.Equal(t, before.BrokerJobSpec.Template.Annotations, job.Spec.Template.Annotations)
		require.Equal(t, *before, broker)
	})
}

func TestNamesInMetadata(t *testing.T) {
	for text, want := range map[string]struct{ ofInstance, ofConfiguration string }{
		"":                      {"", ""},
		"a":                     {"a", "a"},
		"$(AKRI_INSTANCE)":      {"cam-8120fe", "$(AKRI_INSTANCE)"},
		"$(AKRI_CONFIGURATION)": {"cam", "cam"},
		"x.$(AKRI_INSTANCE)$(AKRI_CONFIGURATION)": {"x.cam-8120fecam", "x.$(AKRI_INSTANCE)cam"},
		"$$(AKRI_INSTANCE)":                       {"$(AKRI_INSTANCE)", "$$(AKRI_INSTANCE)"},
		"$$(AKRI_CONFIGURATION)":                  {"$(AKRI_CONFIGURATION)", "$(AKRI_CONFIGURATION)"},
		"$(AKRI_INSTANCE":                         {"$(AKRI_INSTANCE", "$(AKRI_INSTANCE"},
		"$(URL)$(AKRI_NODE)":                      {"$(URL)$(AKRI_NODE)", "$(URL)$(AKRI_NODE)"},
		"$(AKRI_$(AKRI_CONFIGURATION))":           {"$(AKRI_cam)", "$(AKRI_cam)"},
	} {
		user := &akriv0.AdditionalMetadata{
			Labels:      map[string]string{"l": text, render.LabelInstance: "mine"},
			Annotations: map[string]string{"a": text, render.AnnotationSpecHash: "mine"},
		}
		configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "cam"}, Spec: akriv0.ConfigurationSpec{
			BrokerSpec:          &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{}, BrokerPodMetadata: user},
			InstanceServiceSpec: &corev1.ServiceSpec{}, InstanceServiceMetadata: user,
			ConfigurationServiceSpec: &corev1.ServiceSpec{}, ConfigurationServiceMetadata: user,
		}}
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: user.Labels, Annotations: user.Annotations}}
		pod := render.Pod(camera, "node-a", configuration.Spec.BrokerSpec, 0)
		job := render.Job(camera, 1, &batchv1.JobSpec{Template: template})
		ofInstance := render.InstanceService(camera, &configuration.Spec)
		for _, meta := range []metav1.ObjectMeta{pod.ObjectMeta, job.Spec.Template.ObjectMeta, ofInstance.ObjectMeta} {
			require.Equal(t, want.ofInstance, meta.Labels["l"])
			require.Equal(t, want.ofInstance, meta.Annotations["a"])
			require.Equal(t, camera.Name, meta.Labels[render.LabelInstance])
		}
		ofConfiguration := render.ConfigurationService(configuration)
		require.Equal(t, want.ofConfiguration, ofConfiguration.Annotations["a"])
		require.Equal(t, want.ofConfiguration, ofConfiguration.Labels["l"])
		for _, svc := range []*corev1.Service{ofInstance, ofConfiguration} {
			require.Len(t, svc.Annotations[render.AnnotationSpecHash], 16)
		}
		require.Equal(t, text, user.Annotations["a"], "the user's metadata changed")
	}
}

// A Service without metadata has the hash of its spec, as before there was metadata: an upgrade
// updates none.
func TestMetadataOfServicesIsPartOfTheirHash(t *testing.T) {
	spec := akriv0.ConfigurationSpec{InstanceServiceSpec: &corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	hash := func() string { return render.InstanceService(camera, &spec).Annotations[render.AnnotationSpecHash] }
	none := hash()
	require.Equal(t, render.Hash(spec.InstanceServiceSpec), none)
	spec.InstanceServiceMetadata = &akriv0.AdditionalMetadata{Annotations: map[string]string{"a": "b"}}
	first := hash()
	spec.InstanceServiceMetadata.Annotations["a"] = "c"
	require.NotContains(t, []string{none, first}, hash())
	require.NotEqual(t, none, first)
}
