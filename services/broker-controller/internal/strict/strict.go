// Package strict decodes JSON into API types and says everything that is wrong with it, each with
// its path. It differs from encoding/json in that it goes on after a mistake, knows the paths of
// custom types such as quantities, and minds the case of names.
package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unknown is a field that a type does not have.
type Unknown struct {
	Path *field.Path
	// Type that lacks it, and its Name.
	Type reflect.Type
	Name string
}

// Result is all that was found.
type Result struct {
	Problems field.ErrorList
	Unknown  []Unknown
}

// Decode fills the value that `into` points to with all of the JSON value that fits. Numbers must
// be json.Number.
func Decode(path *field.Path, value, into any) Result {
	var d decoder
	d.decode(path, value, reflect.ValueOf(into).Elem())
	return d.Result
}

type decoder struct{ Result }

func (d *decoder) decode(path *field.Path, value any, into reflect.Value) {
	if value == nil {
		return
	}
	if into.Kind() == reflect.Pointer {
		target := reflect.New(into.Type().Elem())
		d.decode(path, value, target.Elem())
		into.Set(target)
		return
	}
	if _, custom := reflect.TypeAssert[json.Unmarshaler](into.Addr()); custom {
		d.leaf(path, value, into)
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.structure(path, value, into)
	case reflect.Map:
		d.mapping(path, value, into)
	case reflect.Slice:
		d.list(path, value, into)
	default:
		d.leaf(path, value, into)
	}
}

func (d *decoder) structure(path *field.Path, value any, into reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		d.mismatch(path, value, "an object")
		return
	}
	indexes := fieldIndexes(into.Type())
	for _, name := range sortedKeys(object) {
		if index, known := indexes[name]; known {
			d.decode(path.Child(name), object[name], into.FieldByIndex(index))
			continue
		}
		d.Unknown = append(d.Unknown, Unknown{path.Child(name), into.Type(), name})
	}
}

// fieldIndexes maps JSON names to the fields of a struct, those of inlined structs too.
func fieldIndexes(of reflect.Type) map[string][]int {
	indexes := map[string][]int{}
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			indexes[name] = f.Index
		}
	}
	return indexes
}

func (d *decoder) mapping(path *field.Path, value any, into reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		d.mismatch(path, value, "an object")
		return
	}
	into.Set(reflect.MakeMapWithSize(into.Type(), len(object)))
	for _, name := range sortedKeys(object) {
		item := reflect.New(into.Type().Elem()).Elem()
		d.decode(path.Key(name), object[name], item)
		into.SetMapIndex(reflect.ValueOf(name).Convert(into.Type().Key()), item)
	}
}

func (d *decoder) list(path *field.Path, value any, into reflect.Value) {
	if into.Type().Elem().Kind() == reflect.Uint8 { // base64
		d.leaf(path, value, into)
		return
	}
	items, ok := value.([]any)
	if !ok {
		d.mismatch(path, value, "a list")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		d.decode(path.Index(i), item, into.Index(i))
	}
}

func (d *decoder) leaf(path *field.Path, value any, into reflect.Value) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, into.Addr().Interface())
	}
	if err == nil {
		return
	}
	into.SetZero()
	switch into.Kind() {
	case reflect.String:
		d.mismatch(path, value, "a string")
	case reflect.Bool:
		d.mismatch(path, value, "true or false")
	case reflect.Int, reflect.Int32, reflect.Int64:
		d.mismatch(path, value, "an integer")
	default:
		d.Problems = append(d.Problems, field.Invalid(path, shown(value), err.Error()))
	}
}

func (d *decoder) mismatch(path *field.Path, value any, want string) {
	d.Problems = append(d.Problems, field.Invalid(path, shown(value), "must be "+want))
}

// shown is the value as an error may print it.
func shown(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return field.OmitValueType{}
	case []any:
		return field.OmitValueType{}
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(value)
}

func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
