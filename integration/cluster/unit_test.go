package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
)

func TestCheckNodes(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []string
		want  string
	}{
		"default":            {nil, ""},
		"valid":              {[]string{"node-a", "b2"}, ""},
		"upper case":         {[]string{"Node"}, `node name "Node"`},
		"path":               {[]string{"../x"}, `node name "../x"`},
		"several problems":   {[]string{"A", "b", "b"}, "digits and dashes\nnode name \"b\" is taken"},
		"duplicate":          {[]string{"a", "a"}, `node name "a" is taken`},
		"control plane":      {[]string{"cp"}, `node name "cp" is taken`},
		"too many addresses": {make([]string, 201), "201 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := cluster.CheckNodes(c.nodes)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestCheckDir(t *testing.T) {
	for dir, want := range map[string]string{
		"/tmp/akri-cluster":   "",
		"/var/lib/akri":       "must not be inside /var/lib",
		"/run":                "must not be inside /run",
		"/runner/akri":        "",
		"/tmp/with space":     "letters, digits",
		"/tmp/$(touch pwned)": "letters, digits",
	} {
		t.Run(dir, func(t *testing.T) {
			err := cluster.CheckDir(dir)
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, want)
		})
	}
}

func TestPrefixDiffersByDir(t *testing.T) {
	require.Equal(t, "akri", cluster.PrefixOf(cluster.DefaultDir))
	require.NotEqual(t, cluster.PrefixOf("/tmp/a"), cluster.PrefixOf("/tmp/b"))
	require.Len(t, cluster.PrefixOf("/tmp/a"), len("akri")+6)
}

func TestParseCgroupMounts(t *testing.T) {
	for name, c := range map[string]struct {
		mounts  string
		unified string
		legacy  []string
	}{
		"v2": {
			"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nproc /proc proc rw 0 0\n", "/sys/fs/cgroup", nil,
		},
		"v1 beside v2": {
			"tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
			"/sys/fs/cgroup/unified", []string{"/sys/fs/cgroup/cpu"},
		},
		"other mount point": {"cgroup2 /mnt/cgroup cgroup2 rw 0 0\n", "", nil},
		"no mounts":         {"", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			unified, legacy := cluster.ParseCgroupMounts(c.mounts)
			require.Equal(t, c.unified, unified)
			require.Equal(t, c.legacy, legacy)
		})
	}
}

func TestParseTasks(t *testing.T) {
	table := "TASK    PID      STATUS    \nabc     12       RUNNING\ndead    0        STOPPED\nended   13       STOPPED\n"
	require.Equal(t, map[string]int{"abc": 12}, cluster.ParseTasks(table))
}

func TestReadyAfterIgnoresOldHeartbeats(t *testing.T) {
	now := time.Now()
	report := func(status corev1.ConditionStatus, at time.Time) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(at), Message: "no network",
		}}}}
	}
	require.NoError(t, cluster.ReadyAfter(report(corev1.ConditionTrue, now), now))
	require.ErrorContains(t, cluster.ReadyAfter(report(corev1.ConditionTrue, now.Add(-time.Second)), now), "last report")
	require.ErrorContains(t, cluster.ReadyAfter(report(corev1.ConditionFalse, now), now), "no network")
	require.ErrorContains(t, cluster.ReadyAfter(&corev1.Node{}, now), "not reported")
}

func TestExternalClusterHasNoNodes(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	writeKubeconfig(t, path)
	c, err := cluster.FromKubeconfig(path)
	require.NoError(t, err)
	require.Empty(t, c.Nodes())
	require.NoError(t, c.Down(t.Context()))
	_, err = c.Node("node-a")
	require.ErrorIs(t, err, cluster.ErrExternal)
	_, err = c.Join(t.Context(), cluster.MemberOptions{Name: "node-a"})
	require.ErrorIs(t, err, cluster.ErrExternal)
	require.ErrorIs(t, c.LoadImage(t.Context(), "x.tar"), cluster.ErrExternal)
}

func TestEnsureUsesKubeconfig(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	writeKubeconfig(t, path)
	t.Setenv("KUBECONFIG", path)
	c, err := cluster.Ensure(t.Context(), cluster.Config{})
	require.NoError(t, err)
	require.Equal(t, path, c.Kubeconfig())
}

func TestInotifyInstancesAreRaised(t *testing.T) {
	file := filepath.Join(t.TempDir(), "max_user_instances")
	for before, after := range map[string]string{"128\n": "512", "512\n": "512\n", "8192\n": "8192\n"} {
		require.NoError(t, os.WriteFile(file, []byte(before), 0o600))
		require.NoError(t, cluster.RaiseInotifyInstances(file, 512))
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, after, string(content))
	}
	// A limit that the kernel does not let anyone change.
	err := cluster.RaiseInotifyInstances("/proc/sys/kernel/ngroups_max", 1<<30)
	require.ErrorContains(t, err, "run sysctl --write fs.inotify.max_user_instances=")
	require.Error(t, cluster.RaiseInotifyInstances(filepath.Join(t.TempDir(), "missing"), 512))
}

func TestWaitErrorHasReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := cluster.Wait(ctx, time.Millisecond, func() error {
		if calls++; calls == 1 {
			return errors.New("4 of 2 Instances")
		}
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "4 of 2 Instances")
}

// TestConcurrentInstallation has an apt-get that fails while another one runs, as the real one
// does.
func TestConcurrentInstallation(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nmkdir " + dir + "/running || exit 100\nsleep 0.1\ncp /bin/true " + dir + "/akri-test-tool\nrmdir " + dir + "/running\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("AKRI_CACHE", t.TempDir())
	missing := func() []string {
		if _, err := os.Stat(filepath.Join(dir, "akri-test-tool")); err == nil {
			return nil
		}
		return []string{"akri-test-tool"}
	}
	var group errgroup.Group
	for range 5 {
		group.Go(func() error { return cluster.EnsurePrerequisites(t.Context(), missing, func(string) {}) })
	}
	require.NoError(t, group.Wait())
}
