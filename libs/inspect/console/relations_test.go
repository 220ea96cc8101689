package console_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// relationsOf returns the picture of relations of a page as text, in which parentheses show what
// follows from an object.
func relationsOf(t *testing.T, page string) string {
	t.Helper()
	_, after, found := strings.Cut(page, `<ul class="relations"`)
	require.True(t, found)
	picture, _, found := strings.Cut(after, "</div>")
	require.True(t, found)
	_, picture, _ = strings.Cut(picture, ">")
	text := strings.NewReplacer("<ul>", " (", "</ul>", ")", "</li><li>", ", ").Replace(picture)
	return strings.TrimSpace(strings.TrimSuffix(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, ""), ")"))
}

func TestRelations(t *testing.T) {
	s := load(t)
	want := "Configuration default/camera (device camera-8120fe (" +
		"node node-a (slot camera-8120fe-0 (Pod default/node-a-camera-8120fe-pod)), " +
		"node node-b (slot camera-8120fe-1 (Pod default/node-b-camera-8120fe-pod))))"
	for _, path := range []string{"/configurations/default/camera", "/devices/default/camera-8120fe"} {
		require.Equal(t, want, relationsOf(t, get(t, s, path).Body.String()), path)
	}

	instance := &s.snapshot.Instances[0]
	instance.Spec.DeviceUsage["camera-8120fe-0"] = ""
	instance.Spec.Nodes = nil
	for i := range 8 {
		instance.Spec.Nodes = append(instance.Spec.Nodes, fmt.Sprintf("node-%d", i))
	}
	require.Equal(t, "Configuration default/camera (device camera-8120fe ("+
		"node node-b (slot camera-8120fe-1 (Pod default/node-b-camera-8120fe-pod)), node node-0, node node-1, node node-2, node node-3, and 4 more))",
		relationsOf(t, get(t, s, "/devices/default/camera-8120fe").Body.String()), "nodes that hold slots come first")
}

func TestRelationsOfManyDevices(t *testing.T) {
	s := load(t)
	for i := range 999 {
		instance := *s.snapshot.Instances[0].DeepCopy()
		instance.Name = fmt.Sprintf("camera-%06x", i)
		s.snapshot.Instances = append(s.snapshot.Instances, instance)
	}
	text := get(t, s, "/configurations/default/camera").Body.String()
	require.Equal(t, 20, strings.Count(relationsOf(t, text), "device "))
	require.Contains(t, text, `<a href="/devices?configuration=default/camera">and 980 more</a>`)
}
