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

// maxAnswer is the longest answer that is taken.
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
	devices, err := decode(response.Body)
	if err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", url, err)
	}
	return devices, nil
}

// decode reads a list that is complete: half of one would take devices away that are still there.
func decode(answer io.Reader) ([]device, error) {
	text, err := io.ReadAll(io.LimitReader(answer, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("more than %d bytes", maxAnswer)
	}
	var devices []device
	if err := json.Unmarshal(text, &devices); err != nil {
		return nil, err
	}
	for i, one := range devices {
		if one.Name == "" {
			return nil, fmt.Errorf("device %d of %d has no name", i+1, len(devices))
		}
	}
	return devices, nil
}
