// Command handler-lamp is a Discovery Handler outside of this repository.
package main

import (
	"context"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
)

type details struct {
	Lamps []string `yaml:"lamps"`
}

func list(_ context.Context, request handler.Request) ([]*handler.Device, error) {
	var d details
	if err := handler.DecodeDetails(request, &d); err != nil {
		return nil, err
	}
	var devices []*handler.Device
	for _, lamp := range d.Lamps {
		devices = append(devices, &handler.Device{Id: lamp, Properties: map[string]string{"LAMP": lamp}})
	}
	return devices, nil
}

func main() {
	service.Main("handler-lamp", "Discovers lamps.", func(flags handler.Flags, env service.Env) (*handler.Server, error) {
		identity := handler.Identity{Name: "lamp"}
		return handler.New(identity, flags, handler.Poll{List: list}, env)
	})
}
