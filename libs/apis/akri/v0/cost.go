package v0

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxListItems is the number of items in all lists of a broker or Service spec. An item of two
// bytes can take a kilobyte when it is decoded.
const MaxListItems = 5000

// maxQuantity is the length of a quantity in bytes. Kubernetes writes quantities of at most 22.
const maxQuantity = 64

var (
	// longExponent matches an exponent of more than two digits.
	longExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{2,}`)
	// expensive matches all texts that have a quantity which CheckQuantity refuses.
	expensive = regexp.MustCompile(longExponent.String() + `|[0-9.]{20,}`)
)

// CheckQuantity returns an error if the text of a quantity is too expensive to parse, to compare or
// to print: package resource computes all digits of 1e-999999999, and removes zeros one by one.
func CheckQuantity(text string) error {
	switch {
	case len(text) > maxQuantity:
		return fmt.Errorf("a quantity has more than %d bytes", maxQuantity)
	case longExponent.MatchString(text):
		return errors.New("a quantity has an exponent of more than two digits")
	}
	return nil
}

// checkCost returns an error if a JSON text is too expensive to decode into a type. It decodes the
// text itself only if something in it could be such a quantity.
func checkCost(text []byte, into reflect.Type) error {
	if items := listItems(text); items > MaxListItems {
		return fmt.Errorf("lists have %d items, more than %d", items, MaxListItems)
	}
	if !expensive.Match(text) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return checkQuantities("", value, into)
}

// listItems returns the number of items in all lists of a JSON text. An empty list counts as one.
func listItems(text []byte) (items int) {
	var lists []bool // whether each open bracket is that of a list
	for b := range Structure(text) {
		switch {
		case b == '[':
			items++
			lists = append(lists, true)
		case b == '{':
			lists = append(lists, false)
		case b == ',' && len(lists) > 0 && lists[len(lists)-1]:
			items++
		case (b == ']' || b == '}') && len(lists) > 0:
			lists = lists[:len(lists)-1]
		}
	}
	return items
}

// Structure returns the brackets and commas of a JSON text that are not part of strings.
func Structure(text []byte) iter.Seq[byte] {
	return func(yield func(byte) bool) {
		quoted, escaped := false, false
		for _, b := range text {
			switch {
			case escaped:
				escaped = false
			case quoted && b == '\\':
				escaped = true
			case b == '"':
				quoted = !quoted
			case !quoted && bytes.IndexByte([]byte("{}[],"), b) >= 0:
				if !yield(b) {
					return
				}
			}
		}
	}
}

// checkQuantities checks the quantities in a value of the type.
func checkQuantities(path string, value any, of reflect.Type) error {
	if of.Kind() == reflect.Pointer {
		return checkQuantities(path, value, of.Elem())
	}
	if of == reflect.TypeFor[resource.Quantity]() {
		if err := CheckQuantity(fmt.Sprint(value)); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
		}
		return nil
	}

	switch value := value.(type) {
	case []any:
		if of.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range value {
			if err := checkQuantities(fmt.Sprintf("%s[%d]", path, i), item, of.Elem()); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, item := range value {
			below := typeOf(name, of)
			if below == nil {
				continue
			}
			if err := checkQuantities(path+"."+name, item, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// typeOf returns the type of a key of an object of the type, or nil if there is none.
func typeOf(key string, of reflect.Type) reflect.Type {
	switch of.Kind() {
	case reflect.Map:
		return of.Elem()
	case reflect.Struct:
		if index, found := JSONFields(of)[key]; found {
			return of.FieldByIndex(index).Type
		}
	}
	return nil
}

// JSONFields maps JSON names to the fields of a struct, including those of embedded structs. Names
// are case-sensitive.
func JSONFields(structType reflect.Type) map[string][]int {
	indexes := map[string][]int{}
	for _, f := range reflect.VisibleFields(structType) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			indexes[name] = f.Index
		}
	}
	return indexes
}
