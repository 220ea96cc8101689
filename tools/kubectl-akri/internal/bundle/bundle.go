// Package bundle writes an archive with the objects and logs that explain a problem, without
// secrets.
package bundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
	"akri.sh/libs/version"
	"akri.sh/tools/kubectl-akri/internal/mask"
	"akri.sh/tools/kubectl-akri/internal/print"
)

const (
	// maxPods is the number of Pods whose logs are written: those that are not ready first.
	maxPods = 100
	// logLines and logBytes limit the log of a container.
	logLines, logBytes = int64(2000), int64(1 << 20)
)

// Write writes the archive to w. The directory is that of all files in it.
func Write(ctx context.Context, w io.Writer, client *cluster.Client, s *explain.Snapshot, directory string, now time.Time) error {
	compressed := gzip.NewWriter(w)
	b := &archive{tar: tar.NewWriter(compressed), directory: directory, now: now}
	if err := b.write(ctx, client, s); err != nil {
		return err
	}
	if err := b.tar.Close(); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

type archive struct {
	tar       *tar.Writer
	directory string
	now       time.Time
	masker    mask.Masker
}

// write masks all objects first, because texts can repeat their secrets.
func (b *archive) write(ctx context.Context, client *cluster.Client, s *explain.Snapshot) error {
	objects, err := b.objects(ctx, client, s)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := b.file("objects/"+object.name+".yaml", object.text); err != nil {
			return err
		}
	}
	if err := b.explanations(s); err != nil {
		return err
	}
	return b.logs(ctx, client, s.Pods)
}

// file writes one file. All texts pass here.
func (b *archive) file(name, text string) error {
	text = b.masker.Text(text)
	header := &tar.Header{Name: b.directory + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now}
	if err := b.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := io.WriteString(b.tar, text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// objectFile has the masked objects of one resource.
type objectFile struct{ name, text string }

func (b *archive) objects(ctx context.Context, client *cluster.Client, s *explain.Snapshot) ([]objectFile, error) {
	version, err := client.Kubernetes.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the version of the API server: %w", err)
	}
	var files []objectFile
	for _, resource := range []struct {
		name    string
		objects any
	}{
		{"configurations", s.Configurations}, {"instances", s.Instances}, {"nodes", s.Nodes}, {"pods", s.Pods}, {"jobs", s.Jobs},
		{"daemonsets", s.DaemonSets}, {"deployments", s.Deployments}, {"webhooks", s.Webhooks},
		{"events", events(ctx, client, s)}, {"version", version},
	} {
		text, err := b.mask(resource.objects)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", resource.name, err)
		}
		files = append(files, objectFile{resource.name, text})
	}
	return files, nil
}

// mask returns the objects as YAML, without secrets.
func (b *archive) mask(objects any) (string, error) {
	encoded, err := json.Marshal(objects)
	if err != nil {
		return "", err
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(b.masker.Object(decoded))
	return string(text), err
}

// events returns the Events of the listed objects, as far as the user may list them.
func events(ctx context.Context, client *cluster.Client, s *explain.Snapshot) []corev1.Event {
	list, err := client.Kubernetes.CoreV1().Events("").List(ctx, cluster.FromCache())
	if err != nil {
		return nil
	}
	pods := map[string]bool{}
	for i := range s.Pods {
		pods[s.Pods[i].Namespace+"/"+s.Pods[i].Name] = true
	}
	return slices.DeleteFunc(list.Items, func(event corev1.Event) bool {
		object := event.InvolvedObject
		return !strings.HasPrefix(object.APIVersion, akriv0.Group+"/") && !pods[object.Namespace+"/"+object.Name]
	})
}

// explanations writes the status, and what explains each Configuration.
func (b *archive) explanations(s *explain.Snapshot) error {
	var text strings.Builder
	print.Overview(&text, status.Of(s), version.Version, true)
	if err := b.file("status.txt", text.String()); err != nil {
		return err
	}
	text.Reset()
	for i := range s.Configurations {
		print.Explanation(&text, explain.Configuration(s, s.Configurations[i].Namespace, s.Configurations[i].Name))
		text.WriteString("\n")
	}
	return b.file("explain.txt", text.String())
}

// logs writes the logs of Akri's Pods.
func (b *archive) logs(ctx context.Context, client *cluster.Client, pods []corev1.Pod) error {
	own := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !explain.IsAkri(&pod) })
	slices.SortFunc(own, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(order(&a), order(&b)), cmp.Compare(a.Name, b.Name))
	})
	for i := range own[:min(len(own), maxPods)] {
		for _, container := range own[i].Status.ContainerStatuses {
			if err := b.log(ctx, client, &own[i], container.Name, false); err != nil {
				return err
			}
			if container.RestartCount == 0 {
				continue
			}
			if err := b.log(ctx, client, &own[i], container.Name, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// order is that of Pods in the limit: not ready, cluster services, the others.
func order(pod *corev1.Pod) int {
	switch {
	case !explain.PodReady(pod):
		return 0
	case metav1.GetControllerOf(pod) != nil && metav1.GetControllerOf(pod).Kind != "DaemonSet":
		return 1
	default:
		return 2
	}
}

// log writes the log of a container. An error is its text, because other logs can be read.
func (b *archive) log(ctx context.Context, client *cluster.Client, pod *corev1.Pod, container string, previous bool) error {
	lines, bytes := logLines, logBytes
	options := &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines, LimitBytes: &bytes}
	text, err := client.Kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	if err != nil {
		text = []byte("error: " + err.Error() + "\n")
	}
	name := fmt.Sprintf("logs/%s/%s/%s", pod.Namespace, pod.Name, container)
	if previous {
		name += ".previous"
	}
	return b.file(name+".log", string(text))
}
