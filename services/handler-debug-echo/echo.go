package debugecho

import (
	"context"
	"errors"
	"slices"
	"time"

	"akri.sh/libs/handler"
)

// safetyNet is how often the file is read although nothing told that it changed.
const safetyNet = 10 * time.Second

// echo answers with what it is asked, while the availability file allows it.
type echo struct{ file string }

func (e echo) discover(ctx context.Context, request handler.Request, send handler.Send) error {
	devices, err := devicesOf(request)
	if err != nil {
		return err
	}
	changed := watchFile(ctx, e.file, request.Log)
	ticker := time.NewTicker(safetyNet)
	defer ticker.Stop()
	for {
		present := devices
		if offline(e.file) {
			present = nil
		}
		if err := send(present); err != nil {
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

// devicesOf is one device per description. One that occurs twice is still one device.
func devicesOf(request handler.Request) ([]*handler.Device, error) {
	var wanted details
	if err := handler.DecodeDetails(request, &wanted); err != nil {
		return nil, err
	}
	if wanted.Descriptions == nil {
		return nil, handler.Invalid(errors.New("discoveryDetails: descriptions: required"))
	}
	slices.Sort(wanted.Descriptions)
	var devices []*handler.Device
	for _, description := range slices.Compact(wanted.Descriptions) {
		if description == "" {
			return nil, handler.Invalid(errors.New("discoveryDetails: descriptions: an empty one"))
		}
		devices = append(devices, &handler.Device{
			Id:         description,
			Properties: map[string]string{"DEBUG_ECHO_DESCRIPTION": description},
		})
	}
	return devices, nil
}
