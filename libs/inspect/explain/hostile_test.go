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

// hostile is executed by a shell in any of the usual quotations.
const hostile = `';reboot;"$(reboot)` + "`reboot`\nreboot"

// Users copy commands. So no command has a text that a node can write, in any cluster of testdata.
func TestTextsOfNodesAreNotInCommands(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	texts, commands := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		cases := expected.FindAllStringSubmatch(string(text), -1)
		s := load(t, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		forEachText(writtenByNodes(s), func(path string) {
			texts++
			changed := *s // without the index of the cluster before
			for _, remedy := range remediesOf(&changed, cases) {
				if remedy.Command != "" {
					commands++
				}
				require.NotContains(t, remedy.Command, "reboot", "%s: %s", file, path)
			}
		})
	}
	t.Logf("%d texts, %d commands", texts, commands)
	require.Greater(t, texts, 1000)
	require.Greater(t, commands, texts)
}

// writtenByNodes returns pointers to what a kubelet, or a service on a node through
// instance-writer, can write.
func writtenByNodes(s *explain.Snapshot) map[string]any {
	written := map[string]any{}
	for i := range s.Configurations {
		written["Configuration "+s.Configurations[i].Name] = &s.Configurations[i].Status
	}
	for i := range s.Instances {
		written["Instance "+s.Instances[i].Name] = &s.Instances[i].Spec.BrokerProperties
	}
	for i := range s.Nodes {
		written["labels of Node "+s.Nodes[i].Name] = &s.Nodes[i].Labels
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

// forEachText calls f with the hostile text behind each text in turn, and restores the text.
func forEachText(roots map[string]any, f func(path string)) {
	for name, root := range roots {
		changeTexts(name, reflect.ValueOf(root).Elem(), f)
	}
}

func changeTexts(path string, value reflect.Value, f func(path string)) {
	switch value.Kind() {
	case reflect.String:
		before := value.String()
		value.SetString(before + hostile)
		f(path)
		value.SetString(before)
	case reflect.Pointer:
		if !value.IsNil() {
			changeTexts(path, value.Elem(), f)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.IsExported() {
				changeTexts(path+"."+field.Name, value.Field(i), f)
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			changeTexts(path, value.Index(i), f)
		}
	case reflect.Map:
		changeMap(path, value, f)
	}
}

// changeMap changes the keys and the values of a map.
func changeMap(path string, value reflect.Value, f func(path string)) {
	for _, key := range value.MapKeys() {
		before := value.MapIndex(key)
		item := reflect.New(before.Type()).Elem()
		item.Set(before)
		changeTexts(path+"."+key.String(), item, func(path string) {
			value.SetMapIndex(key, item)
			f(path)
		})
		value.SetMapIndex(key, before)

		if key.Kind() == reflect.String {
			changed := reflect.ValueOf(key.String() + hostile).Convert(key.Type())
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
