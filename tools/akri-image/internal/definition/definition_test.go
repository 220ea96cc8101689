package definition_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/definition"
)

const minimal = "name: x\ndescription: d\npackage: services/x\n"

func TestLoadSetsDefaults(t *testing.T) {
	dir := dirWith(t, "x", minimal+`
files: [{path: /etc/x, content: text}]
directories: [{path: /tmp, mode: "1777"}, {path: /data}]
`)
	defs, err := definition.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []definition.Definition{{
		Name: "x", Description: "d", Package: "services/x",
		User:        definition.NonRoot,
		Platforms:   definition.DefaultPlatforms(),
		Files:       []definition.File{{Path: "/etc/x", Content: "text", Mode: 0o644}},
		Directories: []definition.Directory{{Path: "/tmp", Mode: 0o1777}, {Path: "/data", Mode: 0o755}},
	}}, defs)
}

func TestLoadSortsByName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir, name, "name: "+name+"\ndescription: d\npackage: p\n")
	}
	for name, c := range map[string]struct{ names, want []string }{
		"all":           {nil, []string{"a", "b", "c"}},
		"two, unsorted": {[]string{"c", "a"}, []string{"a", "c"}},
		"duplicate":     {[]string{"b", "b"}, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			defs, err := definition.Load(dir, c.names...)
			require.NoError(t, err)
			var got []string
			for _, def := range defs {
				got = append(got, def.Name)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestLoadErrorsNameFileAndKey(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"misspelt key":         {"name: x\ndescription: d\npakcage: p\n", []string{`unknown field "pakcage"`}},
		"misspelt nested key":  {minimal + "files: [{pth: /x}]\n", []string{`unknown field "pth"`}},
		"duplicate key":        {minimal + "name: x\n", []string{`"name" already set`}},
		"name of another file": {"name: z\ndescription: d\npackage: p\n", []string{`name: must be "x" like the file, not "z"`}},
		"several problems":     {"name: x\nuser: root\n", []string{"description: must be given", "package: must be a path", `user: must be numeric, uid:gid, not "root"`}},
		"package outside":      {"name: x\ndescription: d\npackage: ../p\n", []string{`package: must be a path inside the repository, not "../p"`}},
		"unquoted mode":        {minimal + "directories: [{path: /tmp, mode: 0755}]\n", []string{"mode: must be a quoted octal number"}},
		"mode in letters":      {minimal + "directories: [{path: /tmp, mode: rwx}]\n", []string{`mode: must be an octal number like "0755", not "rwx"`}},
		"relative path":        {minimal + "directories: [{path: tmp}]\n", []string{`directories[0].path: must be an absolute path, not "tmp"`}},
		"content and source":   {minimal + "files: [{path: /x, content: c, source: s}]\n", []string{"files[0].content, files[0].source: exactly one must be given"}},
		"no content or source": {minimal + "files: [{path: /x}]\n", []string{"files[0].content, files[0].source: exactly one must be given"}},
		"incomplete program":   {minimal + "programs: [{path: /bin/sh}]\n", []string{"programs[0].module", "programs[0].package: must be given"}},
		"unknown platform":     {minimal + "platforms: [linux/mips]\n", []string{`platforms: unknown platform "linux/mips"`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := dirWith(t, "x", c.text)
			_, err := definition.Load(dir)
			require.ErrorContains(t, err, filepath.Join(dir, "x.yaml"))
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestLoadMissingDefinitions(t *testing.T) {
	_, err := definition.Load(t.TempDir())
	require.ErrorContains(t, err, "no image definitions")
	_, err = definition.Load(t.TempDir(), "missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "missing.yaml")
}

func TestRepositoryDefinitionsLoad(t *testing.T) {
	defs, err := definition.Load("../../../../deploy/images")
	require.NoError(t, err)
	require.NotEmpty(t, defs)
}

func dirWith(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, name, text)
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
}
