package values_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

var node = values.Node{Name: "n", ID: "i=1", Setting: "NODES, line 1"}

// stored returns the value that the store has after the server sent data.
func stored(data *ua.DataValue) (value values.Value) {
	store := values.NewStore([]values.Node{node}, func(values.Value) {})
	store.Set(0, node, data)
	return store.All()[0]
}

func good(value any) *ua.DataValue {
	return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(value)}
}

func TestValues(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	number := func(f float64) *float64 { return &f }
	for name, c := range map[string]struct {
		value  any
		want   string
		number *float64
	}{
		"boolean":          {true, `true`, number(1)},
		"byte":             {uint8(7), `7`, number(7)},
		"negative":         {int32(-7), `-7`, number(-7)},
		"large":            {uint64(math.MaxUint64), `18446744073709551615`, number(math.MaxUint64)},
		"float":            {float32(1.5), `1.5`, number(1.5)},
		"not a number":     {math.Inf(1), `"+Inf"`, number(math.Inf(1))},
		"text":             {"a\xff", `"a�"`, nil},
		"time":             {at, `"2026-01-02T03:04:05Z"`, nil},
		"no time":          {time.Time{}, `null`, nil},
		"bytes":            {[]byte("abc"), `"YWJj"`, nil},
		"array of bytes":   {ua.ByteArray{1, 2}, `[1,2]`, nil},
		"array":            {[]float64{1, 2.5}, `[1,2.5]`, nil},
		"two dimensions":   {[][]int32{{1, 2}, {3, 4}}, `[[1,2],[3,4]]`, nil},
		"localized text":   {ua.NewLocalizedText("a"), `"a"`, nil},
		"node id":          {ua.NewStringNodeID(2, "a"), `"ns=2;s=a"`, nil},
		"status":           {ua.StatusBadTimeout, `"BadTimeout"`, nil},
		"structure":        {ua.NewExtensionObject(nil), `null`, nil},
		"different values": {[]*ua.Variant{ua.MustVariant(true), ua.MustVariant("a")}, `[true,"a"]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			value := stored(good(c.value))
			encoded, err := json.Marshal(value.Value)
			require.NoError(t, err)
			require.Equal(t, c.want, string(encoded))
			got, ok := value.Number()
			require.Equal(t, c.number != nil, ok)
			if ok {
				require.InDelta(t, *c.number, got, 0)
			}
			require.False(t, value.Truncated)
		})
	}
}

// TestLimits checks that a server cannot make the broker store and serve values of any size.
func TestLimits(t *testing.T) {
	for name, value := range map[string]any{
		"text":           strings.Repeat("ä", values.MaxText),
		"bytes":          make([]byte, 1<<20),
		"array":          make([]int64, values.MaxElements+1),
		"texts":          strings.Split(strings.Repeat(strings.Repeat("<", 1000)+",", 900), ","),
		"array of bytes": make(ua.ByteArray, 1<<16),
		"nested":         nested(10 * values.MaxElements),
	} {
		t.Run(name, func(t *testing.T) {
			got := stored(good(value))
			require.True(t, got.Truncated)
			encoded, err := json.Marshal(got)
			require.NoError(t, err)
			require.Less(t, len(encoded), 150_000)
		})
	}
	require.False(t, stored(good(make([]int64, values.MaxElements))).Truncated)
	require.False(t, stored(good(strings.Repeat("x", values.MaxText))).Truncated)
}

// nested returns a variant in a variant, and so on.
func nested(levels int) any {
	variant := ua.MustVariant(true)
	for range levels {
		variant = ua.MustVariant([]*ua.Variant{variant})
	}
	return []*ua.Variant{variant}
}

// TestBadValues checks that a value is not served while it is bad, and that repetitions are no
// changes.
func TestBadValues(t *testing.T) {
	var changes []values.Value
	store := values.NewStore([]values.Node{node}, func(value values.Value) { changes = append(changes, value) })
	require.Equal(t, "BadWaitingForInitialData", store.All()[0].Status)
	bad := good(1.5)
	bad.EncodingMask |= ua.DataValueStatusCode
	bad.Status = ua.StatusBadSensorFailure | 0x480 // with the bits of an overflow
	for _, data := range []*ua.DataValue{good(1.5), bad, bad, nil, good(2.5), good(2.5)} {
		store.Set(0, node, data)
	}
	var statuses []string
	for _, change := range changes {
		_, ok := change.Number()
		require.Equal(t, change.Quality == values.Good, ok)
		require.Equal(t, ok, change.Value != nil)
		statuses = append(statuses, change.Status)
	}
	require.Equal(t, []string{"Good", "BadSensorFailure", "BadNoData", "Good", "Good"}, statuses)
	_, found := store.Get("other")
	require.False(t, found)
}

// FuzzValues checks values of any form. An array gets its second dimension here: gopcua decodes the
// dimensions of a message without end for some inputs, such as 6 times 715,827,883 for two elements
// (docs/upstream/gopcua-message-limits.md).
func FuzzValues(f *testing.F) {
	for _, value := range []any{true, "text", []float64{1, 2}, []int32{1, 2}, ua.NewStringNodeID(1, "a")} {
		encoded, err := ua.MustVariant(value).Encode()
		require.NoError(f, err)
		f.Add(encoded, uint8(0))
		f.Add(encoded, uint8(2))
	}
	f.Fuzz(func(t *testing.T, encoded []byte, rows uint8) {
		variant := new(ua.Variant)
		if len(encoded) > 1<<16 || !decodesInBounds(encoded) || !decode(variant, encoded) {
			return
		}
		if rows > 0 {
			variant = split(variant, int(rows))
		}

		value := stored(&ua.DataValue{EncodingMask: ua.DataValueValue, Value: variant})
		text, err := json.Marshal(value)
		require.NoError(t, err)
		require.Less(t, len(text), 150_000)
	})
}

// split returns an array as one of two dimensions, with equal rows, and another value unchanged.
func split(variant *ua.Variant, rows int) *ua.Variant {
	elements := reflect.ValueOf(variant.Value())
	if elements.Kind() != reflect.Slice || !variant.Has(ua.VariantArrayValues) || elements.Len() == 0 || elements.Len()%rows != 0 {
		return variant
	}

	columns := elements.Len() / rows
	matrix := reflect.MakeSlice(reflect.SliceOf(elements.Type()), 0, rows)
	for row := range rows {
		matrix = reflect.Append(matrix, elements.Slice(row*columns, (row+1)*columns))
	}
	return ua.MustVariant(matrix.Interface())
}

// decodesInBounds reports whether gopcua decodes a variant with memory and time in proportion to
// the input. It does not for a larger number of elements than the input has, for dimensions, and
// for values that can contain others.
func decodesInBounds(encoded []byte) bool {
	const array, dimensions, kind, firstNested = 0x80, 0x40, 0x3f, 22
	if len(encoded) == 0 || encoded[0]&kind >= firstNested || encoded[0]&dimensions != 0 {
		return false
	}
	return encoded[0]&array == 0 || len(encoded) >= 5 && int(binary.LittleEndian.Uint32(encoded[1:])) <= len(encoded)
}

// decode returns false for input that gopcua does not accept, by an error or a panic.
func decode(variant *ua.Variant, encoded []byte) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	_, err := variant.Decode(encoded)
	return err == nil
}
