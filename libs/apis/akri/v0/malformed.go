package v0

import (
	"encoding/json"
	"fmt"
	"reflect"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// UnmarshalJSON decodes a Configuration. A broker or Service spec that cannot be decoded is dropped
// and its error is added to Malformed, because the schema does not reject such specs and one of
// them would fail every list request.
func (c *Configuration) UnmarshalJSON(text []byte) error {
	type plain Configuration
	shell := struct {
		*plain

		Spec json.RawMessage `json:"spec"`
	}{plain: (*plain)(c)}
	if err := utiljson.Unmarshal(text, &shell); err != nil {
		return fmt.Errorf("decode Configuration: %w", err)
	}
	c.Spec = ConfigurationSpec{}
	if len(shell.Spec) == 0 {
		return nil
	}
	return c.Spec.decode(shell.Spec)
}

func (s *ConfigurationSpec) decode(text []byte) error {
	type plain ConfigurationSpec
	shell := struct {
		*plain

		BrokerSpec               json.RawMessage `json:"brokerSpec"`
		InstanceServiceSpec      json.RawMessage `json:"instanceServiceSpec"`
		ConfigurationServiceSpec json.RawMessage `json:"configurationServiceSpec"`
	}{plain: (*plain)(s)}
	if err := utiljson.Unmarshal(text, &shell); err != nil {
		return fmt.Errorf("decode spec: %w", err)
	}
	decodePart(s, "brokerSpec", shell.BrokerSpec, &s.BrokerSpec)
	decodePart(s, "instanceServiceSpec", shell.InstanceServiceSpec, &s.InstanceServiceSpec)
	decodePart(s, "configurationServiceSpec", shell.ConfigurationServiceSpec, &s.ConfigurationServiceSpec)
	return nil
}

func decodePart[T any](s *ConfigurationSpec, name string, text json.RawMessage, into **T) {
	if len(text) == 0 {
		return
	}
	err := checkCost(text, reflect.TypeFor[T]())
	if err == nil {
		err = utiljson.Unmarshal(text, into)
	}
	if err != nil {
		*into = nil
		s.Malformed = append(s.Malformed, MalformedField{"spec." + name, err.Error()})
	}
}
