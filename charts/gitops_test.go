package charts_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// TestHealthCheckOfArgoCD runs the health check of the documentation in Argo CD's interpreter, with
// random conditions. It follows Ready and Stalled of the generation that exists.
func TestHealthCheckOfArgoCD(t *testing.T) {
	check := healthCheck(t)
	states := []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	for _, ready := range states {
		for _, stalled := range states {
			for _, works := range states {
				for observed := range int64(3) {
					configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
					configuration.Status.ObservedGeneration = observed
					for kind, state := range map[string]metav1.ConditionStatus{
						"Ready": ready, "Stalled": stalled, akriv0.ConditionDevicesWorking: works, akriv0.ConditionBrokersWorking: works,
					} {
						if state != "" {
							meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{Type: kind, Status: state, Reason: "Reason", Message: "of " + kind})
						}
					}
					want := [2]string{"Progressing", "Akri has not evaluated the Configuration yet"}
					switch {
					case observed != 2:
					case stalled == metav1.ConditionTrue:
						want = [2]string{"Degraded", "of Stalled"}
					case ready == metav1.ConditionTrue:
						want = [2]string{"Healthy", "of Ready"}
					}
					require.Equal(t, want, health(t, check, configuration), "%+v", configuration.Status)
				}
			}
		}
	}
	require.Equal(t, "Progressing", health(t, check, map[string]any{"metadata": map[string]any{"generation": 1}})[0], "without a status")
}

// healthCheck returns the program in the documentation.
func healthCheck(t *testing.T) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```yaml\ndata:\n.*?```").FindString(read(t, "docs/how-to/gitops.md"))
	var config struct{ Data map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(strings.Trim(strings.TrimPrefix(block, "```yaml"), "`")), &config))
	check := config.Data["resource.customizations.health.akri.sh_Configuration"]
	require.NotEmpty(t, check)
	return check
}

// health returns the status and the message that the check returns for the object.
func health(t *testing.T, check string, object any) [2]string {
	t.Helper()
	content, err := json.Marshal(object)
	require.NoError(t, err)
	var decoded any
	require.NoError(t, json.Unmarshal(content, &decoded))
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, decoded))
	require.NoError(t, state.DoString(check))
	result, ok := state.Get(-1).(*lua.LTable)
	require.True(t, ok, "the check returns no table")
	return [2]string{result.RawGetString("status").String(), result.RawGetString("message").String()}
}

// luaValue converts a value of JSON as Argo CD does.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, element := range value {
			table.RawSetString(key, luaValue(state, element))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
		return table
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	default:
		return lua.LNil
	}
}
