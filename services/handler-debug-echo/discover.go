package debugecho

import (
	"context"
	"time"

	"akri.sh/libs/broadcast"
	details "akri.sh/libs/details/debugecho"
	"akri.sh/libs/filewatch"
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
	changed := broadcast.NewSignal()
	defer filewatch.Watch(d.file, changed.Notify)()
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

// devicesOf returns one device for each distinct description.
func devicesOf(request handler.Request) ([]*handler.Device, error) {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return nil, handler.Invalid(err)
	}
	var devices []*handler.Device
	for _, description := range parsed.Descriptions {
		devices = append(devices, &handler.Device{
			Id:         description,
			Properties: map[string]string{"DEBUG_ECHO_DESCRIPTION": description},
		})
	}
	return devices, nil
}
