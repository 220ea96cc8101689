package admission_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"pgregory.net/rapid"

	"akri.sh/libs/details/detailstest"
	"akri.sh/libs/details/validators"
	"akri.sh/services/broker-controller/internal/admission"
)

const detailsField = "spec.discoveryHandler.discoveryDetails: "

// withDetails is a request for a Configuration with these details.
func withDetails(t require.TestingT, handler, details string) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{
		"discoveryHandler": map[string]string{"name": handler, "discoveryDetails": details},
	}})
	require.NoError(t, err)
	return &admissionv1.AdmissionRequest{Name: "echo", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}
}

var denying = admission.Reviewer{Schema: newerSchema{}, DenyInvalidDetails: true}

// TestDetails checks that warnings and refusals have the text of the handlers, whose tests compare
// theirs with that of the validators.
func TestDetails(t *testing.T) {
	for handler, examples := range detailstest.Corpus {
		for _, details := range examples.Accepted {
			for _, reviewer := range []admission.Reviewer{reviewer, denying} {
				response := reviewer.Review(t.Context(), withDetails(t, handler, details))
				require.True(t, response.Allowed, details)
				require.Empty(t, response.Warnings, details)
			}
		}
		for _, details := range examples.Refused {
			want := validators.Validate(handler, details).Error()

			response := reviewer.Review(t.Context(), withDetails(t, handler, details))
			require.True(t, response.Allowed, details)
			require.Equal(t, want, strings.ReplaceAll(strings.Join(response.Warnings, "\n"), detailsField, ""))

			response = denying.Review(t.Context(), withDetails(t, handler, details))
			require.False(t, response.Allowed, details)
			require.Equal(t, detailsField+"Invalid value: "+want, response.Result.Message)
			require.Len(t, response.Result.Details.Causes, 1)
		}
	}
}

func TestDetailsOfOtherHandlersPass(t *testing.T) {
	for _, details := range []string{"", "{", "udevRules: 1", strings.Repeat("x", 1<<20)} {
		response := denying.Review(t.Context(), withDetails(t, "lamp", details))
		require.True(t, response.Allowed)
		require.Empty(t, response.Warnings)
	}
}

// Details that cost too much to check are no reason to refuse a Configuration.
func TestDetailsThatAreNotChecked(t *testing.T) {
	for _, details := range []string{strings.Repeat("x", 1<<20), "descriptions: [&a x, *a]"} {
		response := denying.Review(t.Context(), withDetails(t, "debugEcho", details))
		require.True(t, response.Allowed)
		require.Len(t, response.Warnings, 1)
		require.Contains(t, response.Warnings[0], detailsField+"discoveryDetails: not checked before the Discovery Handler gets them: they have ")
	}
}

func TestLongTextOfDetailsIsCut(t *testing.T) {
	details := "identity: " + strings.Repeat("é", 5000)
	response := denying.Review(t.Context(), withDetails(t, "onvif", details))
	require.False(t, response.Allowed)
	require.Less(t, len(response.Result.Message), 2200)
	require.True(t, strings.HasSuffix(response.Result.Message, "é..."), response.Result.Message)
}

// TestWarningsReachTheUser has details of any characters: an API server drops a warning that is not
// valid in an HTTP header.
func TestWarningsReachTheUser(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`(udevRules|descriptions|uuids): (\['?[\x00-\x7f]{0,20}'?\]|.*)`),
		rapid.StringMatching("[a-z]+: \"[\\x00-\\x1f\u0085a-z]*\""))
	handler := rapid.SampledFrom([]string{"udev", "onvif", "opcua", "debugEcho"})
	rapid.Check(t, func(t *rapid.T) {
		name, details := handler.Draw(t, "handler"), strings.ToValidUTF8(text.Draw(t, "details"), "")
		response := reviewer.Review(t.Context(), withDetails(t, name, details))
		require.True(t, response.Allowed)
		require.Equal(t, validators.Validate(name, details) != nil, len(response.Warnings) > 0)
		for _, warning := range response.Warnings {
			_, err := utilnet.NewWarningHeader(299, "", warning)
			require.NoError(t, err)
		}
	})
}
