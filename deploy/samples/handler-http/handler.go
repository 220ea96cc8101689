// Package handlerhttp is a sample Discovery Handler. Its devices are those that an HTTP endpoint
// lists. docs/tutorials/handler-to-application.md explains it step by step.
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

// maxResponse is the maximum size of a response, in bytes.
const maxResponse = 1 << 20

// List returns the devices of the endpoint in the discoveryDetails of a Configuration.
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
	for _, d := range listed {
		devices = append(devices, &handler.Device{
			Id:         d.Name,
			Properties: map[string]string{"HTTP_DEVICE_NAME": d.Name, "HTTP_DEVICE_URL": d.URL},
		})
	}
	return devices, nil
}

type device struct{ Name, URL string }

func get(ctx context.Context, url, token string) ([]device, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
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
	devices, err := decode(response.Body)
	if err != nil {
		return nil, fmt.Errorf("decode response of %s: %w", url, err)
	}
	return devices, nil
}

// decode returns the devices of a response. Part of a list is an error, because Akri would remove
// the missing devices.
func decode(response io.Reader) ([]device, error) {
	content, err := io.ReadAll(io.LimitReader(response, maxResponse+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxResponse {
		return nil, fmt.Errorf("must have at most %d bytes", maxResponse)
	}
	var devices []device
	if err := json.Unmarshal(content, &devices); err != nil {
		return nil, err
	}
	for i, d := range devices {
		if d.Name == "" {
			return nil, fmt.Errorf("device %d of %d has no name", i+1, len(devices))
		}
	}
	return devices, nil
}
