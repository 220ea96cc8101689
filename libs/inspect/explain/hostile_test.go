package explain_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/inspect/explain"
)

// hostile is executed by a shell in any of the usual quotations. mark is a plain text, which a
// command could have.
const (
	hostile = `';reboot;"$(reboot)` + "`reboot`\nreboot"
	mark    = "Zq"
)

// Users copy commands, and do what the text of a remedy states. So no remedy has a text that a
// node can choose, in any cluster of testdata, whether a shell would execute it or not.
func TestTextsOfNodesAreNotInRemedies(t *testing.T) {
	t.Parallel()
	texts, remedies := changeEach(t, writtenByNodes, mark, func(path string, remedy explain.Remedy) {
		require.NotContains(t, remedy.Command, mark, path)
		require.NotContains(t, remedy.Text, mark, path)
	})
	require.Greater(t, texts, 1000)
	require.Greater(t, remedies, texts)
}

// Authors choose what the commands are about. No command has what a shell would execute.
func TestTextsOfAuthorsAreNotExecuted(t *testing.T) {
	t.Parallel()
	texts, remedies := changeEach(t, writtenByOthers, hostile, func(path string, remedy explain.Remedy) {
		require.NotContains(t, remedy.Command, "reboot", path)
	})
	require.Greater(t, texts, 1000)
	require.Greater(t, remedies, texts)
}

// changeEach appends the addition to each of the texts in turn, in each cluster of testdata. It
// calls check for all remedies that follow.
func changeEach(
	t *testing.T, written func(*explain.Snapshot) map[string]any, addition string, check func(path string, remedy explain.Remedy),
) (texts, remedies int) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), addition)
		cases := expected.FindAllStringSubmatch(string(text), -1)
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))

		forEachText(written(s), addition, func(path string) {
			texts++
			changed := *s // without the index of the cluster before
			for _, remedy := range remediesOf(&changed, cases) {
				remedies++
				check(file+": "+path, remedy)
			}
		})
	}
	t.Logf("%d texts, %d remedies", texts, remedies)
	return texts, remedies
}

// writtenByNodes returns pointers to what a kubelet, or a service on a node through
// instance-writer, can write. The names of nodes are those of their tokens.
func writtenByNodes(s *explain.Snapshot) map[string]any {
	written := map[string]any{}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		written["conditions of Configuration "+c.Name] = &c.Status.Conditions
		for n := range c.Status.Nodes {
			node := &c.Status.Nodes[n]
			written["handlers of "+node.Name+" in Configuration "+c.Name] = &node.Handlers
			written["problems of "+node.Name+" in Configuration "+c.Name] = &node.Problems
		}
	}
	for i := range s.Instances {
		written["Instance "+s.Instances[i].Name] = &s.Instances[i].Spec.BrokerProperties
	}
	for i := range s.Nodes {
		written["labels of Node "+s.Nodes[i].Name] = &s.Nodes[i].Labels
		written["annotations of Node "+s.Nodes[i].Name] = &s.Nodes[i].Annotations
		written["Node "+s.Nodes[i].Name] = &s.Nodes[i].Status
	}
	for i := range s.Pods {
		written["Pod "+s.Pods[i].Name] = &s.Pods[i].Status
	}
	for i := range s.Warnings {
		written["Event "+s.Warnings[i].Name] = &s.Warnings[i]
	}
	for i := range s.Unprepared {
		written["Event "+s.Unprepared[i].Name] = &s.Unprepared[i]
	}
	return written
}

// writtenByOthers returns pointers to what authors of Configurations, Pods and claims can write,
// and to what nodes can write that remedies name if it is plain.
func writtenByOthers(s *explain.Snapshot) map[string]any {
	written := map[string]any{}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		written["Configuration "+c.Name] = &c.Spec
		written["labels of Configuration "+c.Name] = &c.Labels
		written["annotations of Configuration "+c.Name] = &c.Annotations
		written["nodes of Configuration "+c.Name] = &c.Status.Nodes
	}
	for i := range s.Instances {
		written["Instance "+s.Instances[i].Name] = &s.Instances[i].Spec
	}
	for i := range s.Nodes {
		written["Node "+s.Nodes[i].Name] = &s.Nodes[i].Spec
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		written["Pod "+pod.Name] = &pod.Spec
		written["labels of Pod "+pod.Name] = &pod.Labels
		written["annotations of Pod "+pod.Name] = &pod.Annotations
	}
	for i := range s.Jobs {
		written["Job "+s.Jobs[i].Name] = &s.Jobs[i].Spec
	}
	for i := range s.ResourceClaims {
		written["ResourceClaim "+s.ResourceClaims[i].Name] = &s.ResourceClaims[i].Spec
		written["status of ResourceClaim "+s.ResourceClaims[i].Name] = &s.ResourceClaims[i].Status
	}
	for i := range s.ResourceClaimTemplates {
		written["ResourceClaimTemplate "+s.ResourceClaimTemplates[i].Name] = &s.ResourceClaimTemplates[i].Spec
	}
	for i := range s.ResourceSlices {
		written["ResourceSlice "+s.ResourceSlices[i].Name] = &s.ResourceSlices[i].Spec
	}
	return written
}

// forEachText calls f with the addition behind each text in turn, and restores the text.
func forEachText(roots map[string]any, addition string, f func(path string)) {
	for name, root := range roots {
		changeTexts(name, reflect.ValueOf(root).Elem(), addition, f)
	}
}

func changeTexts(path string, value reflect.Value, addition string, f func(path string)) {
	switch value.Kind() {
	case reflect.String:
		before := value.String()
		value.SetString(before + addition)
		f(path)
		value.SetString(before)
	case reflect.Pointer:
		if !value.IsNil() {
			changeTexts(path, value.Elem(), addition, f)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.IsExported() {
				changeTexts(path+"."+field.Name, value.Field(i), addition, f)
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			changeTexts(path, value.Index(i), addition, f)
		}
	case reflect.Map:
		changeMap(path, value, addition, f)
	}
}

// changeMap changes the keys and the values of a map.
func changeMap(path string, value reflect.Value, addition string, f func(path string)) {
	for _, key := range value.MapKeys() {
		before := value.MapIndex(key)
		item := reflect.New(before.Type()).Elem()
		item.Set(before)
		changeTexts(path+"."+key.String(), item, addition, func(path string) {
			value.SetMapIndex(key, item)
			f(path)
		})
		value.SetMapIndex(key, before)

		if key.Kind() == reflect.String {
			changed := reflect.ValueOf(key.String() + addition).Convert(key.Type())
			value.SetMapIndex(key, reflect.Value{})
			value.SetMapIndex(changed, before)
			f("key " + path + "." + key.String())
			value.SetMapIndex(changed, reflect.Value{})
			value.SetMapIndex(key, before)
		}
	}
}

// causesOf returns the causes of all verdicts, and of the objects that the file explains.
func causesOf(s *explain.Snapshot, cases [][]string) (causes []explain.Cause) {
	for _, verdict := range explain.Verdicts(s) {
		causes = append(causes, verdict.Causes...)
	}
	for _, c := range cases {
		for _, link := range explainObject(s, c[1], c[2]).Links {
			causes = append(causes, link.Causes...)
		}
	}
	return causes
}

func remediesOf(s *explain.Snapshot, cases [][]string) []explain.Remedy {
	var remedies []explain.Remedy
	for _, cause := range causesOf(s, cases) {
		remedies = append(remedies, cause.Remedies...)
	}
	return remedies
}
