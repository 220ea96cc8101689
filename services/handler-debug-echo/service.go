// Package debugecho is the Discovery Handler for trying Akri out: its devices are the descriptions that a Configuration
// lists, and a file takes all of them away and brings them back.
package debugecho

import (
	"fmt"
	"path/filepath"

	"akri.sh/libs/handler"
	"akri.sh/libs/service"
)

// Config is what the handler is told by flags and environment.
type Config struct {
	handler.Flags

	InstancesShared  bool   `help:"Say that every node sees the same devices." env:"AKRI_INSTANCES_SHARED,DEBUG_ECHO_INSTANCES_SHARED" default:"true"`
	AvailabilityFile string `help:"While this file contains OFFLINE there are no devices." default:"/tmp/debug-echo-availability.txt" placeholder:"FILE"`
}

// New returns the handler, ready to run.
func New(config Config, env service.Env) (*handler.Server, error) {
	if !filepath.IsAbs(config.AvailabilityFile) {
		return nil, fmt.Errorf("--availability-file %q: want an absolute path", config.AvailabilityFile)
	}
	identity := handler.Identity{Name: "debugEcho", Shared: config.InstancesShared}
	return handler.New(identity, config.Flags, handler.Watch(echo{file: config.AvailabilityFile}.discover), env)
}
