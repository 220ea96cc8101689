// Package handlerhttp is a Discovery Handler as anybody may write one: its devices are those that an HTTP endpoint lists.
// docs/handlers.md builds it step by step.
package handlerhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"akri.sh/libs/handler"
)

// maxAnswer is how much of an answer is read.
const maxAnswer = 1 << 20

// List asks the endpoint that a Configuration names for its devices.
func List(ctx context.Context, request handler.Request) ([]*handler.Device, error) {
	var details struct {
		URL string `yaml:"url"`
	}
	if err := handler.DecodeDetails(request, &details); err != nil {
		return nil, err
	}
	if details.URL == "" {
		return nil, handler.Invalid(errors.New("discoveryDetails: url: required"))
	}
	listed, err := get(ctx, details.URL, string(request.Properties["token"]))
	if err != nil {
		return nil, err
	}
	var devices []*handler.Device
	for _, one := range listed {
		devices = append(devices, &handler.Device{
			Id:         one.Name,
			Properties: map[string]string{"HTTP_DEVICE_NAME": one.Name, "HTTP_DEVICE_URL": one.URL},
		})
	}
	return devices, nil
}

type device struct{ Name, URL string }

func get(ctx context.Context, url, token string) ([]device, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, handler.Invalid(fmt.Errorf("discoveryDetails: url: %w", err))
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	var devices []device
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&devices); err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", url, err)
	}
	return devices, nil
}
