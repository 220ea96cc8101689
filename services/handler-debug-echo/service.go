// Package debugecho is a Discovery Handler with fake devices for tests and demos. Its devices are
// the descriptions in a Configuration; a file makes all of them unavailable.
package debugecho

import (
	"fmt"
	"path/filepath"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
)

// Config of the handler.
type Config struct {
	handler.Flags

	InstancesShared  bool   `help:"Whether all nodes see the same devices." env:"AKRI_INSTANCES_SHARED,DEBUG_ECHO_INSTANCES_SHARED" default:"true"`
	AvailabilityFile string `help:"File that makes all devices unavailable while it contains OFFLINE." default:"/tmp/debug-echo-availability.txt" placeholder:"FILE"`
}

// New checks the configuration. It starts nothing.
func New(config Config, env service.Env) (*handler.Server, error) {
	if !filepath.IsAbs(config.AvailabilityFile) {
		return nil, fmt.Errorf("--availability-file %q: must be an absolute path", config.AvailabilityFile)
	}
	identity := handler.Identity{Name: "debugEcho", Shared: config.InstancesShared}
	return handler.New(identity, config.Flags, handler.Watch(discoverer{file: config.AvailabilityFile}.discover), env)
}
