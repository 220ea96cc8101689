package handler_test

import (
	"context"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
)

// This is a complete Discovery Handler. Its devices are the lamps in `discoveryDetails: "lamps:
// [hall]"`.
func Example() {
	list := func(_ context.Context, request handler.Request) ([]*handler.Device, error) {
		var details struct {
			Lamps []string `yaml:"lamps"`
		}
		if err := handler.DecodeDetails(request, &details); err != nil {
			return nil, err
		}
		var devices []*handler.Device
		for _, lamp := range details.Lamps {
			devices = append(devices, &handler.Device{Id: lamp, Properties: map[string]string{"LAMP": lamp}})
		}
		return devices, nil
	}
	// The body of main:
	_ = func() {
		service.Main("handler-lamp", "Discovers lamps.", func(flags handler.Flags, env service.Env) (*handler.Server, error) {
			identity := handler.Identity{Name: "lamp", Shared: true}
			return handler.New(identity, flags, handler.Poll{List: list}, env)
		})
	}
}
