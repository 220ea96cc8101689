package kubetest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube"
)

const pollEvery = 50 * time.Millisecond

func (s *Server) waitReady(ctx context.Context) error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a server that this package just started
	}}
	defer client.CloseIdleConnections()
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+"/readyz", nil)
		if err != nil {
			return false, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			return false, nil //nolint:nilerr // not up yet
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		output, _ := os.ReadFile(s.path("kube-apiserver.log"))
		return fmt.Errorf("wait for the API server: %w\n%s", err, output[max(0, len(output)-2000):])
	}
	return nil
}

// installCRDs installs those that the chart ships.
func (s *Server) installCRDs(ctx context.Context) error {
	client, err := kube.NewClient(s.config, apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions"), apiextensions.AddToScheme,
		func() *apiextensions.CustomResourceDefinition { return &apiextensions.CustomResourceDefinition{} },
		func() *apiextensions.CustomResourceDefinitionList {
			return &apiextensions.CustomResourceDefinitionList{}
		})
	if err != nil {
		return err
	}
	_, here, _, _ := runtime.Caller(0)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(here), "../../../charts/akri-crds/templates/*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find CRDs of the chart: %v found, %w", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read CRD: %w", err)
		}
		crd := &apiextensions.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		if _, err := client.In("").Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CRD: %w", err)
		}
		if err := established(ctx, func() (*apiextensions.CustomResourceDefinition, error) {
			return client.In("").Get(ctx, crd.Name, metav1.GetOptions{})
		}); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

func established(ctx context.Context, get func() (*apiextensions.CustomResourceDefinition, error)) error {
	return wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) {
		crd, err := get()
		if err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensions.Established && condition.Status == apiextensions.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}
