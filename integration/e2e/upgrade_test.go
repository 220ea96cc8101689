package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// fromTag is the tag of the images of the earlier commit.
const fromTag = "from"

// TestUpgrade builds the images of the commit in AKRI_E2E_FROM, installs its chart, and upgrades.
// Brokers keep their pods and slots. It needs a cluster on which Akri was not installed before.
func TestUpgrade(t *testing.T) {
	commit := os.Getenv("AKRI_E2E_FROM")
	if commit == "" {
		t.Skip("AKRI_E2E_FROM names no commit")
	}
	selectForm(decided())
	tree := filepath.Join(t.TempDir(), "tree")
	runIn(t.Context(), t, akri.Path(), nil, "git", "worktree", "add", "--detach", tree, commit)
	t.Cleanup(func() {
		runIn(context.WithoutCancel(t.Context()), t, akri.Path(), nil, "git", "worktree", "remove", "--force", tree)
	})
	cache := t.TempDir()
	runIn(t.Context(), t, tree, []string{"AKRI_CACHE=" + cache, "AKRI_TAG=" + fromTag}, "make", "images")
	images, err := mesh.ImageFiles(filepath.Join(cache, "images"))
	require.NoError(t, err)
	for _, image := range images {
		require.NoError(t, akri.Cluster.LoadImage(t.Context(), image))
	}
	_, err = akri.Helm(t.Context(), "install", mesh.Release, filepath.Join(tree, "charts", "akri"), "--namespace", mesh.Namespace,
		"--create-namespace", "--wait", "--timeout", "3m", "--set", "global.image.tag="+fromTag)
	require.NoError(t, err)
	awaitWebhook(t)

	apply(t, echoConfiguration("e2e-from", 3, broker, "foo0", "foo1"))
	awaitBrokers(t, "default", "e2e-from", 4)
	ofUser := ownPod("user-of-from", "e2e-from-8120fe")
	apply(t, ofUser)
	user := awaitReadyPod(t, "default", "user-of-from")
	before := observe(t, "e2e-from")
	require.NoError(t, akri.Install(t.Context()))
	awaitServices(t)
	require.Equal(t, before, observe(t, "e2e-from"))
	require.Equal(t, user.UID, awaitReadyPod(t, "default", "user-of-from").UID)
	if user.Status.ExtendedResourceClaimStatus == nil { // by default, the commit has device plugins
		awaitDecision(t, akriv0.ResourcesDevicePlugin, akriv0.ResourcesInstancesExist)
	}
	for _, service := range services() {
		for _, pod := range servicePods(t, service) {
			require.NotContains(t, pod.Spec.Containers[0].Image, ":"+fromTag)
		}
	}
	// The upgraded services work.
	apply(t, echoConfiguration("e2e-upgraded", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-upgraded", 2)

	// Without the driver the kubelet cannot end a Pod with a claim.
	require.NoError(t, akri.DeleteText(t.Context(), ofUser))
	_, err = akri.Uninstall(t.Context())
	require.NoError(t, err)
}

// runIn runs a command in a directory with additional environment variables.
func runIn(ctx context.Context, t *testing.T, dir string, env []string, name string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir, command.Env = dir, append(os.Environ(), env...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, arguments, output)
}
