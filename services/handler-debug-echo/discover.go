package debugecho

import (
	"context"
	"errors"
	"slices"
	"time"

	"akri.sh/libs/handler"
)

// resyncInterval is how often the availability file is read without a file system event.
const resyncInterval = 10 * time.Second

// discoverer returns the devices of the details while the availability file allows it.
type discoverer struct{ file string }

func (d discoverer) discover(ctx context.Context, request handler.Request, send handler.Send) error {
	devices, err := devicesOf(request)
	if err != nil {
		return err
	}
	changed := watchFile(ctx, d.file, request.Log)
	ticker := time.NewTicker(resyncInterval)
	defer ticker.Stop()
	for {
		available := devices
		if offline(d.file) {
			available = nil
		}
		if err := send(available); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}

type details struct {
	Descriptions []string `yaml:"descriptions"`
}

// devicesOf returns one device for each distinct description.
func devicesOf(request handler.Request) ([]*handler.Device, error) {
	var d details
	if err := handler.DecodeDetails(request, &d); err != nil {
		return nil, err
	}
	if d.Descriptions == nil {
		return nil, handler.Invalid(errors.New("discoveryDetails: descriptions: required"))
	}
	slices.Sort(d.Descriptions)
	var devices []*handler.Device
	for _, description := range slices.Compact(d.Descriptions) {
		if description == "" {
			return nil, handler.Invalid(errors.New("discoveryDetails: descriptions: must not contain an empty string"))
		}
		devices = append(devices, &handler.Device{
			Id:         description,
			Properties: map[string]string{"DEBUG_ECHO_DESCRIPTION": description},
		})
	}
	return devices, nil
}
