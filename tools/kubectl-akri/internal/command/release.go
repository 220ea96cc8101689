package command

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/requirements"
	"akri.sh/tools/kubectl-akri/check"
)

// chart is the name of the chart with the services.
const chart = "akri"

// listsMetadataOnly is the media type of a list of Secrets without their data.
const listsMetadataOnly = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

// readRelease reads the Helm release of Akri in the namespace, and which of its objects do not
// exist. It returns nil if there is none, or if the user may not read Secrets.
func readRelease(ctx context.Context, client *cluster.Client, namespace string) (*check.Release, error) {
	newest, err := newestRevisions(ctx, client, namespace)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Helm releases: %w", err)
	}
	for _, revision := range newest {
		stored, err := client.Kubernetes.CoreV1().Secrets(namespace).Get(ctx, revision.Name, metav1.GetOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read Helm releases: %w", err)
		}
		content, err := decodeRelease(stored.Data["release"])
		if err != nil {
			return nil, fmt.Errorf("decode the Helm release in the Secret %s: %w", revision.Name, err)
		}
		if content.Chart.Metadata.Name != chart {
			continue
		}

		release := releaseOf(revision, namespace)
		release.Missing, err = missingObjects(ctx, client, namespace, content.Manifest)
		return release, err
	}
	return nil, nil
}

// newestRevisions returns the Secret of the last revision of each release, without its data.
func newestRevisions(ctx context.Context, client *cluster.Client, namespace string) (map[string]metav1.PartialObjectMetadata, error) {
	text, err := client.Kubernetes.CoreV1().RESTClient().Get().Namespace(namespace).Resource("secrets").
		Param("labelSelector", "owner=helm").SetHeader("Accept", listsMetadataOnly).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var secrets metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text, &secrets); err != nil {
		return nil, err
	}
	newest := map[string]metav1.PartialObjectMetadata{}
	for _, secret := range secrets.Items {
		name := secret.Labels["name"]
		if old, ok := newest[name]; !ok || revisionOf(secret) > revisionOf(old) {
			newest[name] = secret
		}
	}
	return newest, nil
}

func revisionOf(secret metav1.PartialObjectMetadata) int {
	revision, _ := strconv.Atoi(secret.Labels["version"])
	return revision
}

// releaseOf returns what the labels of Helm state.
func releaseOf(secret metav1.PartialObjectMetadata, namespace string) *check.Release {
	release := &check.Release{
		Name: secret.Labels["name"], Namespace: namespace, Status: secret.Labels["status"], Revision: revisionOf(secret),
		Changed: secret.CreationTimestamp.Time,
	}
	if seconds, err := strconv.ParseInt(secret.Labels["modifiedAt"], 10, 64); err == nil {
		release.Changed = time.Unix(seconds, 0)
	}
	return release
}

// helmRelease is the part of a release that is read.
type helmRelease struct {
	Manifest string `json:"manifest"`
	Chart    struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	} `json:"chart"`
}

// decodeRelease decodes the content of a Secret of Helm: JSON, compressed and in base64.
func decodeRelease(encoded []byte) (*helmRelease, error) {
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(encoded)))
	if err != nil {
		return nil, err
	}
	release := &helmRelease{}
	return release, json.NewDecoder(unzipped).Decode(release)
}

// missingObjects returns the objects of a manifest that the cluster does not have.
func missingObjects(ctx context.Context, client *cluster.Client, namespace, manifest string) ([]akriv0.Subject, error) {
	groups, err := restmapper.GetAPIGroupResources(client.Kubernetes.Discovery())
	if err != nil {
		return nil, fmt.Errorf("read the types of the cluster: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	var missing []akriv0.Subject
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return missing, nil
		}
		var object metav1.PartialObjectMetadata
		if err == nil {
			err = yaml.Unmarshal(document, &object)
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifest of the release: %w", err)
		}
		if object.Kind == "" {
			continue // only comments
		}
		subject, isMissing, err := isMissing(ctx, client, mapper, namespace, &object)
		if err != nil {
			return nil, fmt.Errorf("read %s %s: %w", object.Kind, object.Name, err)
		}
		if isMissing {
			missing = append(missing, subject)
		}
	}
}

// isMissing reports whether the cluster does not have the object, or the type of the object.
func isMissing(
	ctx context.Context, client *cluster.Client, mapper meta.RESTMapper, namespace string, object *metav1.PartialObjectMetadata,
) (akriv0.Subject, bool, error) {
	subject := akriv0.Subject{Kind: object.Kind, Name: object.Name}
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return subject, true, nil
	}
	if err != nil {
		return subject, false, err
	}

	path := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"/api", kind.Version}
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		subject.Namespace = cmp.Or(object.Namespace, namespace)
		path = append(path, "namespaces", subject.Namespace)
	}
	path = append(path, mapping.Resource.Resource, object.Name)
	missing, err := requirements.Missing(ctx, client.Kubernetes.Discovery().RESTClient(), path...)
	return subject, missing, err
}
