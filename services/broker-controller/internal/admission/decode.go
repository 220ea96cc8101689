package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// decoder decodes JSON values into API types. It differs from the strict decoders of
// sigs.k8s.io/json and of the API server: it continues after a wrong type, and errors of quantities
// have a path.
type decoder struct {
	errs    problems
	unknown []unknownField
	// items is the number of items in the lists so far.
	items int
}

const (
	// maxProblems limits the problems in a response.
	maxProblems = 50
	// maxValue is the length of a value in a problem, in bytes.
	maxValue = 256
	// maxUnknown limits the unknown fields that are looked up in the cluster's schema.
	maxUnknown = 1000
)

// problems are the first problems of a spec and the number of the others.
type problems struct {
	first   field.ErrorList
	omitted int
}

func (p *problems) add(err *field.Error) {
	if value, ok := err.BadValue.(string); ok && len(value) > maxValue {
		err.BadValue = strings.ToValidUTF8(value[:maxValue], "") + "…"
	}
	if len(p.first) < maxProblems {
		p.first = append(p.first, err)
	} else {
		p.omitted++
	}
}

// unknownField is a field that the compiled API types do not have.
type unknownField struct {
	path *field.Path
	// parent is the type that does not have the field.
	parent reflect.Type
	name   string
}

// decode sets target to the parts of a JSON value that are valid. Numbers must be json.Number.
func (d *decoder) decode(path *field.Path, value any, target reflect.Value) {
	if value == nil {
		return
	}
	if target.Kind() == reflect.Pointer {
		element := reflect.New(target.Type().Elem())
		d.decode(path, value, element.Elem())
		target.Set(element)
		return
	}
	if _, ok := reflect.TypeAssert[json.Unmarshaler](target.Addr()); ok {
		d.decodeScalar(path, value, target)
		return
	}
	switch target.Kind() {
	case reflect.Struct:
		d.decodeStruct(path, value, target)
	case reflect.Map:
		d.decodeMap(path, value, target)
	case reflect.Slice:
		d.decodeSlice(path, value, target)
	default:
		d.decodeScalar(path, value, target)
	}
}

func (d *decoder) decodeStruct(path *field.Path, value any, target reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		d.typeError(path, value, "an object")
		return
	}
	indexes := akriv0.JSONFields(target.Type())
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if index, ok := indexes[name]; ok {
			d.decode(path.Child(name), object[name], target.FieldByIndex(index))
			continue
		}
		if len(d.unknown) == maxUnknown {
			d.errs.omitted++
			continue
		}
		d.unknown = append(d.unknown, unknownField{path.Child(name), target.Type(), name})
	}
}

func (d *decoder) decodeMap(path *field.Path, value any, target reflect.Value) {
	object, ok := value.(map[string]any)
	if !ok {
		d.typeError(path, value, "an object")
		return
	}
	target.Set(reflect.MakeMapWithSize(target.Type(), len(object)))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		item := reflect.New(target.Type().Elem()).Elem()
		d.decode(path.Key(name), object[name], item)
		target.SetMapIndex(reflect.ValueOf(name).Convert(target.Type().Key()), item)
	}
}

func (d *decoder) decodeSlice(path *field.Path, value any, target reflect.Value) {
	if target.Type().Elem().Kind() == reflect.Uint8 { // base64
		d.decodeScalar(path, value, target)
		return
	}
	items, ok := value.([]any)
	if !ok {
		d.typeError(path, value, "a list")
		return
	}
	if d.items += len(items); d.items > akriv0.MaxListItems {
		d.errs.add(field.Invalid(path, field.OmitValueType{}, fmt.Sprintf("the lists of the spec have more than %d items in all", akriv0.MaxListItems)))
		return
	}
	target.Set(reflect.MakeSlice(target.Type(), len(items), len(items)))
	for i, item := range items {
		d.decode(path.Index(i), item, target.Index(i))
	}
}

// decodeScalar decodes all values that the decoder does not look into. It leaves the zero value
// after an error.
func (d *decoder) decodeScalar(path *field.Path, value any, target reflect.Value) {
	text, err := json.Marshal(value)
	if err == nil && target.Type() == reflect.TypeFor[resource.Quantity]() {
		err = akriv0.CheckQuantity(string(text))
	}
	if err == nil {
		err = json.Unmarshal(text, target.Addr().Interface())
	}
	if err == nil {
		return
	}
	target.SetZero()
	switch target.Kind() {
	case reflect.String:
		d.typeError(path, value, "a string")
	case reflect.Bool:
		d.typeError(path, value, "true or false")
	case reflect.Int, reflect.Int32, reflect.Int64:
		d.typeError(path, value, "an integer")
	default:
		d.errs.add(field.Invalid(path, printable(value), err.Error()))
	}
}

func (d *decoder) typeError(path *field.Path, value any, expected string) {
	d.errs.add(field.Invalid(path, printable(value), "must be "+expected))
}

// printable returns the value as an error prints it. Objects and lists are omitted.
func printable(value any) any {
	switch v := value.(type) {
	case map[string]any, []any:
		return field.OmitValueType{}
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(value)
}
