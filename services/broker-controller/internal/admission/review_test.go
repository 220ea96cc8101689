package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"akri.sh/services/broker-controller/internal/admission"
)

// newerSchema has one field of containers that the compiled types do not have. It fails for another
// one.
type newerSchema struct{}

func (newerSchema) HasField(_ context.Context, parent reflect.Type, name string) (bool, error) {
	if name == "unreachable" {
		return false, errors.New("unreachable")
	}
	return parent.Name() == "Container" && name == "teleport", nil
}

var reviewer = admission.Reviewer{Schema: newerSchema{}}

func object(t testing.TB, spec string) runtime.RawExtension {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("metadata: {name: echo}\nspec: " + spec))
	require.NoError(t, err)
	return runtime.RawExtension{Raw: text}
}

func created(t testing.TB, spec string) *admissionv1.AdmissionRequest {
	t.Helper()
	return &admissionv1.AdmissionRequest{UID: "1", Name: "echo", Operation: admissionv1.Create, Object: object(t, spec)}
}

const (
	head   = `{discoveryHandler: {name: lamp}, `
	device = `resources: {limits: {"{{PLACEHOLDER}}": "1"}}`
)

func pod(rest string) string {
	return head + `brokerSpec: {brokerPodSpec: {` + rest + `}}}`
}

func container(rest string) string {
	return pod(`containers: [{name: broker, image: v1, ` + rest + `}]`)
}

func TestReviewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"no handler":       {`{capacity: 1}`, []string{`spec.discoveryHandler.name: Required value`}},
		"an unknown field": {head + `capasity: 2}`, []string{`spec.capasity: Forbidden: unknown field`}},
		"fields of early versions": {
			`{protocol: {udev: {udevRules: []}}, brokerPodSpec: {containers: []}, units: 2, properties: {A: b}}`,
			[]string{
				`spec.protocol: Forbidden: unknown field; use spec.discoveryHandler with name, for example udev, and discoveryDetails`,
				`spec.brokerPodSpec: Forbidden: unknown field; use spec.brokerSpec.brokerPodSpec`,
				`spec.units: Forbidden: unknown field; use spec.capacity`,
				`spec.properties: Forbidden: unknown field; use spec.brokerProperties`,
				`spec.discoveryHandler.name: Required value`,
			},
		},
		"capacity 0":                    {head + `capacity: 0}`, []string{`spec.capacity: Invalid value: 0: must be from 1 to 1000`}},
		"capacity that is text":         {head + `capacity: many}`, []string{`spec.capacity: Invalid value: "many": must be an integer`}},
		"a capacity that is a fraction": {head + `capacity: 1.5}`, []string{`spec.capacity: Invalid value: "1.5": must be an integer`}},
		"both brokers": {
			head + `brokerSpec: {brokerPodSpec: {containers: [{name: a, ` + device + `}]}, brokerJobSpec: {template: {spec: {containers: [{name: a, ` + device + `}]}}}}}`,
			[]string{`spec.brokerSpec: Forbidden: set exactly one of brokerPodSpec and brokerJobSpec`},
		},
		"no broker":                        {head + `brokerSpec: {}}`, []string{`spec.brokerSpec: Required value: set exactly one`}},
		"a misspelt key":                   {container(`imagePullPolcy: Always, ` + device), []string{`spec.brokerSpec.brokerPodSpec.containers[0].imagePullPolcy: Forbidden: unknown field`}},
		"a key of another case":            {container(`Command: [x], ` + device), []string{`containers[0].Command: Forbidden: unknown field`}},
		"a misplaced key":                  {pod(`containers: [{name: a, ` + device + `}], livenessProbe: {}`), []string{`spec.brokerSpec.brokerPodSpec.livenessProbe: Forbidden`}},
		"deep in a Job":                    {head + `brokerSpec: {brokerJobSpec: {backofLimit: 1, template: {spec: {containers: [{name: a, env: [{nam: x}], ` + device + `}]}}}}}`, []string{`spec.brokerSpec.brokerJobSpec.backofLimit: Forbidden`, `spec.brokerSpec.brokerJobSpec.template.spec.containers[0].env[0].nam: Forbidden`}},
		"in a Service":                     {head + `instanceServiceSpec: {ports: [{prot: 80}]}, configurationServiceSpec: {selector: [a]}}`, []string{`spec.configurationServiceSpec.selector: Invalid value: must be an object`, `spec.instanceServiceSpec.ports[0].prot: Forbidden`}},
		"wrong types":                      {pod(`containers: {name: a}, hostNetwork: "yes", terminationGracePeriodSeconds: soon`), []string{`containers: Invalid value: must be a list`, `hostNetwork: Invalid value: "yes": must be true or false`, `terminationGracePeriodSeconds: Invalid value: "soon": must be an integer`}},
		"a bad quantity":                   {container(`resources: {limits: {cpu: lots, memory: 10Mb, "{{PLACEHOLDER}}": "1"}}`), []string{`resources.limits[cpu]: Invalid value: "lots": quantities must match`, `resources.limits[memory]: Invalid value: "10Mb"`}},
		"blanks in the placeholder":        {container(`resources: {limits: {"{{ PLACEHOLDER }}": "1"}}`), []string{`resources.limits: Invalid value: "{{ PLACEHOLDER }}": is not a resource name; use "{{PLACEHOLDER}}" for the device`}},
		"a brace too few":                  {container(`resources: {limits: {"{PLACEHOLDER}": "1"}}`), []string{`"{PLACEHOLDER}": is not a resource name`}},
		"a misspelt placeholder":           {container(`resources: {limits: {"{{PLACEHOLER}}": "1"}}`), []string{`"{{PLACEHOLER}}": is not a resource name`}},
		"a bare placeholder":               {container(`resources: {requests: {placeholder: "1"}}`), []string{`resources.requests: Invalid value: "placeholder": is not a resource name`}},
		"a placeholder of the pod":         {pod(`resources: {limits: {"{{PLACEHOLDER}}": "1"}}, containers: [{name: a}]`), []string{`brokerPodSpec.resources.limits[{{PLACEHOLDER}}]: Forbidden: set it in the resources of a container`}},
		"a device only in requests":        {container(`resources: {requests: {"{{PLACEHOLDER}}": "1"}}`), []string{`resources.limits[{{PLACEHOLDER}}]: Required value`}},
		"requests that differ from limits": {head + `capacity: 2, brokerSpec: {brokerPodSpec: {containers: [{name: a, resources: {limits: {"{{PLACEHOLDER}}": "2"}, requests: {"{{PLACEHOLDER}}": "1"}}}]}}}`, []string{`must equal the value in limits`}},
		"zero slots":                       {container(`resources: {limits: {"{{PLACEHOLDER}}": "0"}}`), []string{`must be a whole number and at least 1`}},
		"half a slot":                      {container(`resources: {limits: {"{{PLACEHOLDER}}": "500m"}}`), []string{`must be a whole number and at least 1`}},
		"too many slots for an integer":    {container(`resources: {limits: {"{{PLACEHOLDER}}": 1e30}}`), []string{`must be a whole number and at least 1`}},
		"a negative number":                {container(`resources: {limits: {"{{PLACEHOLDER}}": "-1"}}`), []string{`must be a whole number and at least 1`}},
		"more slots than capacity":         {container(`resources: {limits: {"{{PLACEHOLDER}}": "2"}}`), []string{`must not be more than the capacity, 1`}},
		"bad labels":                       {head + `brokerSpec: {brokerPodMetadata: {labels: {"a b": c, d: "e f"}}, brokerPodSpec: {containers: [{name: a, ` + device + `}]}}}`, []string{`brokerPodMetadata.labels[a b]`, `brokerPodMetadata.labels[d]`}},
		"bad labels of Services":           {head + `instanceServiceMetadata: {labels: {"a b": c}}, configurationServiceMetadata: {labels: {a: $(AKRI_INSTANCE)}}}`, []string{`spec.instanceServiceMetadata.labels[a b]`, `spec.configurationServiceMetadata.labels[a]`}},
		"a misspelt name in a label":       {head + `instanceServiceMetadata: {labels: {a: $(AKRI_INSTANC)}}}`, []string{`spec.instanceServiceMetadata.labels[a]: Invalid value: "$(AKRI_INSTANC)"`}},
		"a name too long for a label":      {head + `instanceServiceMetadata: {labels: {a: "` + strings.Repeat("a", 53) + `$(AKRI_INSTANCE)"}}}`, []string{`spec.instanceServiceMetadata.labels[a]`}},
		"all at once": {
			`{capacity: 0, discoveryHandler: {nam: x}, brokerSpec: {brokerPodSpec: {containers: [{imag: v1, resources: {limits: {cpu: x, "{PLACEHOLDER}": "1"}}}]}}}`,
			[]string{`spec.discoveryHandler.name`, `spec.discoveryHandler.nam:`, `spec.capacity`, `containers[0].imag`, `limits[cpu]`, `{PLACEHOLDER}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			response := reviewer.Review(t.Context(), created(t, c.spec))
			require.False(t, response.Allowed)
			for _, want := range c.want {
				require.Contains(t, response.Result.Message, want)
			}
			require.Len(t, response.Result.Details.Causes, len(c.want), response.Result.Message)
		})
	}
}

func TestReviewAllows(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		// warning is part of the expected warning. Empty means none.
		warning string
	}{
		"only a handler":          {head + `}`, ""},
		"null values":             {head + `discoveryHandler: {name: a, discoveryProperties: null}, brokerSpec: null, instanceServiceSpec: null}`, ""},
		"numbers as quantities":   {container(`ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: http}}, resources: {limits: {cpu: 1, "{{PLACEHOLDER}}": 1}}`), ""},
		"1000m of a device":       {container(`resources: {limits: {"{{PLACEHOLDER}}": 1000m}, requests: {"{{PLACEHOLDER}}": "1"}}`), ""},
		"inlined volumes":         {pod(`volumes: [{name: a, hostPath: {path: /dev}}], containers: [{name: a, ` + device + `}]`), ""},
		"an init container":       {pod(`initContainers: [{name: i, ` + device + `}], containers: [{name: a}]`), ""},
		"no device":               {container(`command: [x]`), "spec.brokerSpec.brokerPodSpec.containers: no container has {{PLACEHOLDER}} in resources.limits"},
		"a newer field":           {container(`teleport: true, ` + device), "spec.brokerSpec.brokerPodSpec.containers[0].teleport: ignored: newer than this version of Akri"},
		"an unreachable schema":   {container(`unreachable: true, ` + device), "the cluster's schema cannot be read"},
		"a usual property":        {head + `brokerProperties: {RESOLUTION_WIDTH: "640"}}`, ""},
		"a dangerous property":    {head + `brokerProperties: {LD_PRELOAD: /x}}`, "spec.brokerProperties[LD_PRELOAD]: changes how programs run"},
		"a reserved label":        {head + `brokerSpec: {brokerPodMetadata: {labels: {controller: me}}, brokerPodSpec: {containers: [{name: a, ` + device + `}]}}}`, "brokerPodMetadata.labels[controller]: has no effect"},
		"names in metadata":       {head + `instanceServiceMetadata: {labels: {a: $(AKRI_INSTANCE)}, annotations: {a: $(AKRI_INSTANCE), b: $$(AKRI_X), c: $(X)}}, configurationServiceMetadata: {labels: {a: $(AKRI_CONFIGURATION)}}}`, ""},
		"a misspelt name":         {head + `instanceServiceMetadata: {annotations: {a: "x-$(AKRI_INSTANC)"}}}`, "spec.instanceServiceMetadata.annotations[a]: $(AKRI_INSTANC) is not replaced: use $(AKRI_CONFIGURATION), or in objects of a device $(AKRI_INSTANCE)"},
		"a name of no device":     {head + `configurationServiceMetadata: {annotations: {a: $(AKRI_INSTANCE)}}}`, "spec.configurationServiceMetadata.annotations[a]: $(AKRI_INSTANCE) is not replaced"},
		"ttlSecondsAfterFinished": {head + `brokerSpec: {brokerJobSpec: {ttlSecondsAfterFinished: 1, template: {spec: {containers: [{name: a, ` + device + `}]}}}}}`, "ttlSecondsAfterFinished: has no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			response := reviewer.Review(t.Context(), created(t, c.spec))
			require.True(t, response.Allowed, "%+v", response.Result)
			if c.warning == "" {
				require.Empty(t, response.Warnings)
				return
			}
			require.Len(t, response.Warnings, 1)
			require.Contains(t, response.Warnings[0], c.warning)
		})
	}
}

func TestReviewRefusesLongNames(t *testing.T) {
	request := created(t, head+`}`)
	request.Name = strings.Repeat("a", 57)
	require.Contains(t, reviewer.Review(t.Context(), request).Result.Message, "metadata.name: Too long: may not be more than 56")
	request.Name = strings.Repeat("a", 56)
	require.True(t, reviewer.Review(t.Context(), request).Allowed)
}

func TestReviewAllowsUnchangedSpecs(t *testing.T) {
	bad := object(t, `{capacity: 0}`)
	deleting := func(spec string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":` + spec + `}`)}
	}
	for name, request := range map[string]admissionv1.AdmissionRequest{
		"deletion":  {Operation: admissionv1.Delete, OldObject: bad},
		"same spec": {Operation: admissionv1.Update, OldObject: bad, Object: bad},
		"deleting":  {Operation: admissionv1.Update, OldObject: bad, Object: deleting(`{"capacity":0}`)},
		"status":    {Operation: admissionv1.Update, SubResource: "status", OldObject: bad, Object: object(t, `{capacity: -1}`)},
	} {
		require.True(t, reviewer.Review(t.Context(), &request).Allowed, name)
	}
	edited := &admissionv1.AdmissionRequest{Operation: admissionv1.Update, OldObject: bad, Object: object(t, `{capacity: -1}`)}
	require.False(t, reviewer.Review(t.Context(), edited).Allowed)
	edited.Object = deleting(`{"capacity":-1}`)
	require.False(t, reviewer.Review(t.Context(), edited).Allowed, "a finalizer keeps the object, and its spec is used")
	require.Contains(t, reviewer.Review(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Create}).Result.Message, "object contains no data")
}

// TestBoundedProblems has more problems than a response.
func TestBoundedProblems(t *testing.T) {
	for name, c := range map[string]struct {
		before, entry, after string
		count                int
	}{
		"unknown fields": {"", `"f%d": 1, `, "", 100_000},
		"wrong types":    {"args: [", "%d, ", "], ", 4000},
	} {
		t.Run(name, func(t *testing.T) {
			var entries strings.Builder
			for i := range c.count {
				fmt.Fprintf(&entries, c.entry, i)
			}
			response := reviewer.Review(t.Context(), created(t, container(c.before+entries.String()+c.after+device)))
			require.False(t, response.Allowed)
			require.Len(t, response.Result.Details.Causes, 51)
			require.Contains(t, response.Result.Message, fmt.Sprintf("spec: Invalid value: has %d more problems", c.count-50))
		})
	}
}

func post(t testing.TB, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, admission.Path, bytes.NewReader(body))
	admission.Handler(reviewer, zap.NewNop(), func(bool) {}).ServeHTTP(recorder, request)
	return recorder
}

func TestHandler(t *testing.T) {
	require.Equal(t, http.StatusBadRequest, post(t, []byte(`{`)).Code)
	require.Equal(t, http.StatusBadRequest, post(t, []byte(`{}`)).Code)
	review := admissionv1.AdmissionReview{Request: created(t, head+`}`)}
	review.APIVersion, review.Kind = "admission.k8s.io/v1beta1", "AdmissionReview"
	body, err := json.Marshal(review)
	require.NoError(t, err)
	var response admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(post(t, body).Body.Bytes(), &response))
	require.Equal(t, review.TypeMeta, response.TypeMeta)
	require.Nil(t, response.Request)
	require.EqualValues(t, "1", response.Response.UID)
	require.True(t, response.Response.Allowed)
}

// FuzzReview checks that every input gets a refusal, an approval or the status 400 or 413.
func FuzzReview(f *testing.F) {
	for _, spec := range []string{
		head + `}`, pod(`containers: [{name: a, ` + device + `}]`), container(`resources: {limits: {cpu: 1e999, x: -}}`),
		container(`resources: {limits: {cpu: "1e-999999999"}, requests: {cpu: "1234567890123456789012e999999999"}}`),
		head + `capacity: 1e400}`, `[]`, `"x"`, head + `instanceServiceSpec: {ports: [{port: 99999999999999999999}]}}`,
		pod(`activeDeadlineSeconds: -0.0, containers: [null, {env: null}], overhead: {"{{": 1Ei}, volumes: [{secret: {items: [[]]}}]`),
	} {
		f.Add(object(f, spec).Raw)
	}
	f.Add([]byte(`{"spec":null}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			response := reviewer.Review(t.Context(), &admissionv1.AdmissionRequest{Operation: operation, Object: runtime.RawExtension{Raw: raw}})
			require.True(t, response.Allowed || len(response.Result.Details.Causes) > 0)
		}
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge}, post(t, raw).Code)
	})
}

// TestReviewAllowsShippedFiles reviews the samples and the rendered Configurations of the chart.
func TestReviewAllowsShippedFiles(t *testing.T) {
	count := 0
	for _, pattern := range []string{"deploy/samples/*.yaml", "charts/testdata/*.golden.yaml"} {
		files, err := filepath.Glob(filepath.Join("../../../..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for document := range strings.SplitSeq(string(text), "\n---") {
				var meta struct{ Kind string }
				require.NoError(t, yaml.Unmarshal([]byte(document), &meta), file)
				if meta.Kind != "Configuration" {
					continue
				}
				object, err := yaml.YAMLToJSON([]byte(document))
				require.NoError(t, err)
				response := reviewer.Review(t.Context(), &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object}})
				require.True(t, response.Allowed, "%s: %+v", file, response.Result)
				require.Empty(t, response.Warnings, file)
				count++
			}
		}
	}
	require.Positive(t, count)
}
