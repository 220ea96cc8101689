package e2e_test

import (
	"flag"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// scenario is a function that runs as a subtest. The name of the subtest shows where it is:
// TestMesh/brokers/failingJob is the function failingJob in brokers_test.go. If a scenario has
// scenarios itself, only the names of their functions are added.
type scenario func(*testing.T)

// name returns the name of the subtest of t.
func (s scenario) name(t *testing.T) string {
	t.Helper()
	pc := reflect.ValueOf(s).Pointer()
	function := runtime.FuncForPC(pc)
	name := function.Name()[strings.LastIndex(function.Name(), ".")+1:]
	if strings.Contains(t.Name(), "/") {
		return name
	}
	file, _ := function.FileLine(pc)
	return strings.TrimSuffix(filepath.Base(file), "_test.go") + "/" + name
}

// inOrder runs scenarios one by one. It stops after the first that fails: later scenarios would
// fail for the same reason.
func inOrder(t *testing.T, scenarios ...scenario) {
	t.Helper()
	for _, s := range scenarios {
		if !t.Run(s.name(t), s) {
			return
		}
	}
}

// parallel runs scenarios in parallel, as many as the flag -parallel allows, and waits for all. It
// reports whether all have passed. They start in their order. With t.Parallel they would not, and a
// long one that starts last runs alone.
func parallel(t *testing.T, scenarios ...scenario) bool {
	t.Helper()
	limit, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	require.NoError(t, err)
	var group errgroup.Group
	group.SetLimit(limit)
	for _, s := range scenarios {
		group.Go(func() error {
			t.Run(s.name(t), s)
			return nil
		})
	}
	_ = group.Wait() // a failed scenario has failed its test
	return !t.Failed()
}
