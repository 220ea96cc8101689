package agent

import (
	"akri.sh/libs/service"
	"akri.sh/services/agent/internal/component"
)

// AddHandler adds a handler to a Service that does not run yet.
func (s *Service) AddHandler(name string, create func(struct{}, service.Env) (service.Runner, error), env service.Env) error {
	handler, err := component.NewRestarting(component.New(name, create, struct{}{}), env)
	s.handlers = append(s.handlers, handler)
	return err
}
