package merge

import (
	"encoding/json"
	"fmt"
	"unique"
)

// Properties are the environment variables of a device. Equal ones are stored once: all nodes that
// share a device report the same.
type Properties struct {
	encoded unique.Handle[string]
}

// NewProperties returns the Properties with the values.
func NewProperties(values map[string]string) Properties {
	encoded, err := json.Marshal(values)
	if err != nil {
		panic(err) // maps of strings have an encoding
	}
	return Properties{unique.Make(string(encoded))}
}

// Map returns a new map with the values.
func (p Properties) Map() map[string]string {
	if p == (Properties{}) {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(p.encoded.Value()), &values); err != nil {
		panic(fmt.Sprintf("properties %q: %v", p.encoded.Value(), err)) // NewProperties encoded them
	}
	return values
}
