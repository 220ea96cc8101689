package explain_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/inspect/explain"
)

// TestLinks requires that all links of all objects of testdata have what their states need.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		for _, e := range explanations(s) {
			for _, link := range e.Links {
				requireComplete(t, link, "%s: %s %s: %s", file, e.Kind, e.Name, link.Name)
				requireRemedies(t, link, "%s: %s %s: %s", file, e.Kind, e.Name, link.Name)
			}
		}
	}
}

// explanations explains all objects for which `kubectl akri explain` has a form.
func explanations(s *explain.Snapshot) (all []explain.Explanation) {
	for _, c := range s.Configurations {
		all = append(all, explain.Configuration(s, c.Namespace, c.Name))
	}
	for _, i := range s.Instances {
		all = append(all, explain.Instance(s, i.Namespace, i.Name))
	}
	for _, pod := range s.Pods {
		all = append(all, explain.Pod(s, pod.Namespace, pod.Name))
	}
	return all
}

// requireConsistent requires that a verdict has what its state needs.
func requireConsistent(t *testing.T, v explain.Verdict) {
	t.Helper()
	requireComplete(t, linkOf(v), v.Subject)
	requireRemedies(t, linkOf(v), v.Subject)
	if v.State == explain.Works || v.State == explain.Skipped || v.State == explain.OutOfService {
		require.Empty(t, v.Causes, v.Subject)
	}
	if v.Subject.Kind == "Pod" {
		require.NotEqual(t, explain.Partly, v.State, "%v: a Pod runs or does not", v.Subject)
	}
}

// linkOf returns the link that led to the verdict, without its name.
func linkOf(v explain.Verdict) explain.Link {
	return explain.Link{State: v.State, Message: v.Message, Causes: v.Causes, Wait: v.Wait}
}

// requireComplete requires that the state has its causes or its Wait, and that no text is empty.
func requireComplete(t *testing.T, link explain.Link, what ...any) {
	t.Helper()
	require.NotEmpty(t, link.Message, what...)
	for _, cause := range link.Causes {
		require.NotEmpty(t, cause.ID, what...)
		require.NotEmpty(t, cause.Message, what...)
		for _, remedy := range cause.Remedies {
			require.NotEmpty(t, remedy.Text, what...)
		}
	}

	switch link.State {
	case explain.Broken, explain.Partly:
		require.NotEmpty(t, link.Causes, what...)
		require.NotEmpty(t, link.Causes[0].Remedies, what...)
	case explain.Waiting:
		require.NotNil(t, link.Wait, what...)
	}
}

// requireRemedies requires that remedies interrupt something only if there is a fault, or will be
// one at a time. The causes of a link that works are information, for example on nodes without
// Akri.
func requireRemedies(t *testing.T, link explain.Link, what ...any) {
	t.Helper()
	endless := link.State == explain.Waiting && link.Wait.Until.IsZero()
	if !endless && !slices.Contains([]explain.State{explain.NoneFound, explain.OutOfService, explain.Skipped}, link.State) {
		return
	}
	for _, cause := range link.Causes {
		for _, remedy := range cause.Remedies {
			require.Empty(t, remedy.Interrupted(), what...)
		}
	}
}
