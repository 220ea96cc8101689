package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"

	"akri.sh/integration/mesh"
)

// deletedObjects deletes random objects of the Helm release, AKRI_E2E_OBJECTS times, also those
// about which explanations have no rule. Without the variable it is skipped, because an object can
// take minutes. Sometimes it restarts all Pods of Akri, because many objects are read only then.
// The verdicts on a device of before and on the devices of a new Configuration are that they work
// exactly if a Pod gets a device, and `check` fails if one does not.
func deletedObjects(t *testing.T) {
	const kept = "e2e-kept"
	count := repetitions(t, "AKRI_E2E_OBJECTS", 0)
	if count == 0 {
		t.Skip("AKRI_E2E_OBJECTS is not set")
	}
	random := seeded(t, "AKRI_E2E_OBJECTS_SEED")
	apply(t, echoConfiguration(kept, 1, "", "foo0"))
	awaitInstances(t, "default", kept, kept+"-8120fe")
	objects := releaseObjects(t)
	for i := range count {
		d := deletion{object: objects[random.IntN(len(objects))], restart: random.IntN(2) == 0, name: fmt.Sprintf("e2e-new-%d", i)}
		t.Run(d.object.Kind+" "+d.object.Name, func(t *testing.T) {
			d.check(t, walkedProbe{namespace: "default", configuration: kept, device: kept + "-8120fe"})
		})
		awaitVerdict(t, "default", kept, akriv0.ConditionDevicesWorking, "Works")
	}
}

// deletion is an object that is deleted.
type deletion struct {
	object releaseObject
	// restart reports whether the Pods of Akri are deleted, too.
	restart bool
	// name is that of a Configuration that is created afterwards.
	name string
}

// releaseObject is an object of the Helm release.
type releaseObject struct {
	metav1.PartialObjectMetadata
	manifest string
}

// releaseObjects returns the objects of the release that can be deleted.
func releaseObjects(t *testing.T) []releaseObject {
	t.Helper()
	text, err := akri.Helm(t.Context(), "get", "manifest", mesh.Release, "--namespace", mesh.Namespace)
	require.NoError(t, err)
	var objects []releaseObject
	for _, document := range regexp.MustCompile(`(?m)^---\n`).Split(text, -1) {
		object := releaseObject{manifest: document}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.PartialObjectMetadata), "%s", document)
		if object.Name != "" {
			objects = append(objects, object)
		}
	}
	require.NotEmpty(t, objects)
	return objects
}

func (d deletion) check(t *testing.T, kept walkedProbe) {
	t.Logf("Pods are restarted: %t", d.restart)
	restored := false
	restore := func() {
		if restored {
			return
		}
		restored = true
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, reinstall(ctx))
		// The tokens of Pods are those of the ServiceAccount that was deleted.
		require.NoError(t, restartPods(ctx))
		require.NoError(t, reinstall(ctx)) // which waits
		require.NoError(t, akri.AwaitWebhook(ctx))
	}
	defer restore()
	_, err := akri.Kubectl(t.Context(), d.object.manifest, "delete", "--namespace", mesh.Namespace, "--filename", "-")
	require.NoError(t, err)
	if d.restart {
		require.NoError(t, restartPods(t.Context()))
	}

	// The chart can be installed without instance-writer, for one of others, so that the verdicts
	// do not state that its Deployment does not exist. `check` compares the release.
	if d.object.Kind == "Deployment" && d.object.Name == "akri-instance-writer" {
		awaitFailedCheck(t)
		return
	}

	probes := []walkedProbe{kept}
	manifest := echoConfiguration(d.name, 1, "", "foo0")
	refusal := akri.ApplyText(t.Context(), manifest)
	if refusal == nil {
		probes = append(probes, walkedProbe{namespace: "default", configuration: d.name, device: d.name + "-8120fe", subject: explain.SubjectDevices})
	}
	works := refusal == nil
	for _, probe := range probes {
		if state := probe.requireAgrees(t, nil); state != explain.Works {
			works = false
		}
	}
	t.Logf("everything works: %t, a new Configuration is refused: %v", works, refusal)
	if !works {
		awaitFailedCheck(t)
	}

	restore()
	require.NoError(t, akri.DeleteText(t.Context(), manifest))
}

// restartPods deletes the Pods of Akri.
func restartPods(ctx context.Context) error {
	_, err := akri.Kubectl(ctx, "", "delete", "pods", "--namespace", mesh.Namespace, "--selector", "app.kubernetes.io/part-of=akri")
	return err
}

// awaitFailedCheck waits until any result of `kubectl akri check` has failed.
func awaitFailedCheck(t *testing.T) {
	t.Helper()
	await(t, "a failed check", func(ctx context.Context) error {
		results, err := checkResults(ctx)
		if err == nil && !slices.ContainsFunc(results, func(r checkResult) bool { return r.Outcome == "Failed" }) {
			err = errors.New("no check has failed")
		}
		return err
	})
}
