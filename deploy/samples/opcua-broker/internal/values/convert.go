package values

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopcua/opcua/ua"
)

// Limits of a value. A server may send more, which is cut off.
const (
	// MaxText is the number of bytes of a text, or of a byte string before its base64 encoding.
	MaxText = 4 << 10
	// MaxElements is the number of elements in an array, with those of the arrays in it.
	MaxElements = 1000
	// maxTotal is the number of bytes of the texts of an array.
	maxTotal = 16 << 10
)

// Quality is the severity of a status code.
type Quality string

// The qualities.
const (
	Good      Quality = "good"
	Uncertain Quality = "uncertain"
	Bad       Quality = "bad"
)

// Qualities are all of them.
var Qualities = []Quality{Good, Uncertain, Bad}

func qualityOf(status ua.StatusCode) Quality {
	switch uint32(status) >> 30 { // OPC 10000-4, 7.39: the severity
	case 0:
		return Good
	case 1:
		return Uncertain
	default:
		return Bad
	}
}

// statusName returns the name without the bits about the value, such as that of an overflow.
func statusName(status ua.StatusCode) string {
	const code = 0xFFFF0000
	if status&code == ua.StatusGood {
		return "Good"
	}
	if known, found := ua.StatusCodes[status&code]; found {
		return strings.TrimPrefix(known.Name, "Status")
	}
	return fmt.Sprintf("0x%08X", uint32(status))
}

// convert returns the value that a server sent. It keeps nothing of the message.
func convert(node Node, data *ua.DataValue) Value {
	if data == nil {
		return describe(node, ua.StatusBadNoData, "")
	}
	value := describe(node, data.Status, "")
	value.SourceTimestamp = timestamp(data.SourceTimestamp, data.Has(ua.DataValueSourceTimestamp))
	value.ServerTimestamp = timestamp(data.ServerTimestamp, data.Has(ua.DataValueServerTimestamp))
	if data.Value == nil || value.Quality == Bad {
		return value
	}
	value.Type = strings.TrimPrefix(data.Value.Type().String(), "TypeID")
	limits := limits{elements: MaxElements, bytes: maxTotal}
	value.Value = limits.json(reflect.ValueOf(data.Value.Value()))
	value.Truncated = limits.exceeded
	value.number = number(data.Value.Value())
	return value
}

// timestamp omits times that JSON has no form for.
func timestamp(at time.Time, has bool) *time.Time {
	if !has || at.Year() < 1601 || at.Year() > 9999 {
		return nil
	}
	at = at.UTC()
	return &at
}

func number(value any) *float64 {
	var result float64
	switch v := reflect.ValueOf(value); {
	case !v.IsValid() || v.Type() == reflect.TypeFor[ua.StatusCode]():
		return nil
	case v.Kind() == reflect.Bool:
		if v.Bool() {
			result = 1
		}
	case v.CanInt():
		result = float64(v.Int())
	case v.CanUint():
		result = float64(v.Uint())
	case v.CanFloat():
		result = v.Float()
	default:
		return nil
	}
	return &result
}

// limits is what is left of the limits of a value.
type limits struct {
	elements, bytes int
	exceeded        bool
}

// json returns the form of a value for encoding/json. Values without a form are null.
func (l *limits) json(v reflect.Value) any {
	if !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil()) {
		return nil
	}
	switch typed := v.Interface().(type) {
	case time.Time:
		if at := timestamp(typed, true); at != nil {
			return at
		}
		return nil
	case ua.StatusCode:
		return statusName(typed)
	case *ua.Variant: // in an array of values of different types
		if l.elements == 0 {
			l.exceeded = true
			return nil
		}
		l.elements--
		return l.json(reflect.ValueOf(typed.Value()))
	case ua.ByteArray: // an array of numbers
		return l.list(v)
	case []byte:
		return base64.StdEncoding.EncodeToString(typed[:l.allow(len(typed))])
	case *ua.LocalizedText:
		return l.text(typed.Text)
	case *ua.QualifiedName:
		return l.text(typed.Name)
	case fmt.Stringer: // GUID, NodeID, ExpandedNodeID
		return l.text(typed.String())
	}
	switch v.Kind() {
	case reflect.String:
		return l.text(v.String())
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(f) // JSON has no such numbers
		}
		return v.Interface()
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v.Interface()
	case reflect.Slice:
		return l.list(v)
	default: // structures, whose types only the server has
		return nil
	}
}

func (l *limits) list(v reflect.Value) []any {
	list := []any{}
	for i := range v.Len() {
		if l.elements == 0 {
			l.exceeded = true
			break
		}
		l.elements--
		list = append(list, l.json(v.Index(i)))
	}
	return list
}

func (l *limits) text(text string) string {
	n := l.allow(len(text))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.ToValidUTF8(strings.Clone(text[:n]), "\uFFFD")
}

// allow returns how many of n bytes are within the limits.
func (l *limits) allow(n int) int {
	allowed := min(n, MaxText, l.bytes)
	l.bytes -= allowed
	l.exceeded = l.exceeded || allowed < n
	return allowed
}
