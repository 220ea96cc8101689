package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube"
)

type crdClient = kube.Client[*apiextensions.CustomResourceDefinition, *apiextensions.CustomResourceDefinitionList]

// installCRDs installs the CRDs of charts/akri-crds and waits until they are established.
func (s *Server) installCRDs(ctx context.Context) error {
	resource := apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions")
	client, err := kube.NewClient[apiextensions.CustomResourceDefinition, apiextensions.CustomResourceDefinitionList](
		s.config, resource)
	if err != nil {
		return err
	}
	_, thisFile, _, _ := runtime.Caller(0)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(thisFile), "../../../charts/akri-crds/templates/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find CRDs: %d files, %w", len(files), err)
	}
	for _, file := range files {
		if err := installCRD(ctx, client, file); err != nil {
			return fmt.Errorf("install %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

func installCRD(ctx context.Context, client *crdClient, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	crd := &apiextensions.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		return err
	}
	if _, err := client.In("").Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		created, err := client.In("").Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(created.Status.Conditions, func(c apiextensions.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensions.Established && c.Status == apiextensions.ConditionTrue
		}), nil
	})
}
