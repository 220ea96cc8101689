package v0_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// hostileQuantities take gigabytes or hours to parse, or to compare with others.
var hostileQuantities = []string{`"1e-999999999"`, `1e-999999999`, `"1e999999999"`, `1E+999999999`, `"1234567890123456789012e999999999"`, `" 1e000999999999 "`, `"0.1e-2147483648"`,
	`"1` + strings.Repeat("0", 100_000) + `"`, `0.` + strings.Repeat("0", 100_000) + `1`, `"1` + strings.Repeat("0", 100_000) + `Ki"`}

// TestExpensiveQuantitiesAreMalformed puts quantities into each field of a broker that has one.
// Such a Configuration must not stop the services that read it.
func TestExpensiveQuantitiesAreMalformed(t *testing.T) {
	fields := fieldsOf(reflect.TypeFor[akriv0.BrokerSpec](), reflect.TypeFor[resource.Quantity]())
	require.Greater(t, len(fields), 20)
	for _, field := range fields {
		for _, quantity := range hostileQuantities {
			broker := fmt.Sprintf(field, quantity)
			c := decode(t, broker)
			require.Len(t, c.Spec.Malformed, 1, broker)
			require.Contains(t, c.Spec.Malformed[0].Message, "a quantity has ", broker)
			require.Nil(t, c.Spec.BrokerSpec)
		}
		require.Empty(t, decode(t, fmt.Sprintf(field, `"15e-3"`)).Spec.Malformed)
	}
	// Other fields can have any text.
	require.Empty(t, decode(t, `{"brokerPodSpec": {"containers": [{"image": "a:1e999999999", "env": [{"name": "A", "value": "1e-999999999"}]}]}}`).Spec.Malformed)
}

// TestManyItemsAreMalformed has lists of small items, which take a hundred times the memory.
func TestManyItemsAreMalformed(t *testing.T) {
	for _, item := range []string{`{}`, `{"name":"a,[\""}`} {
		list := func(items int) string {
			return `{"brokerPodSpec":{"containers":[` + strings.Repeat(item+",", items-1) + item + `]}}`
		}
		require.Empty(t, decode(t, list(akriv0.MaxListItems)).Spec.Malformed)
		require.Equal(t, []akriv0.MalformedField{{Field: "spec.brokerSpec", Message: "lists have 5001 items, more than 5000"}}, decode(t, list(akriv0.MaxListItems+1)).Spec.Malformed)
	}
}

// FuzzBroker decodes a broker, and counts the items in its lists. What is accepted is written in
// time: the fuzzer fails for an input that takes ten seconds.
func FuzzBroker(f *testing.F) {
	for i, field := range fieldsOf(reflect.TypeFor[akriv0.BrokerSpec](), reflect.TypeFor[resource.Quantity]()) {
		f.Add(fmt.Sprintf(field, hostileQuantities[i%len(hostileQuantities)]))
		f.Add(fmt.Sprintf(field, `"15e-3"`))
	}
	f.Add(`{"brokerPodSpec":{"containers":[{"args":["\\\"[,","]"],"name":{"x":[[],[[1,2]],"a"]}}]}}`)

	f.Fuzz(func(t *testing.T, broker string) {
		var value any
		if json.Unmarshal([]byte(broker), &value) != nil {
			return
		}
		require.GreaterOrEqual(t, akriv0.ListItems([]byte(broker)), itemsOf(value), "keys can be repeated")

		var c akriv0.Configuration
		if json.Unmarshal([]byte(`{"spec": {"discoveryHandler": {"name": "lamp"}, "brokerSpec": `+broker+`}}`), &c) != nil {
			return
		}
		if len(c.Spec.Malformed) > 0 {
			require.NotEmpty(t, c.Spec.Malformed[0].Message)
			return
		}
		_, err := json.Marshal(c)
		require.NoError(t, err)
	})
}

// itemsOf returns the number of items in all lists of a value. An empty list counts as one.
func itemsOf(value any) (items int) {
	switch value := value.(type) {
	case []any:
		items = max(len(value), 1)
		for _, item := range value {
			items += itemsOf(item)
		}
	case map[string]any:
		for _, item := range value {
			items += itemsOf(item)
		}
	}
	return items
}

func decode(t *testing.T, broker string) (c akriv0.Configuration) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(`{"spec": {"discoveryHandler": {"name": "lamp"}, "brokerSpec": `+broker+`}}`), &c), broker)
	return c
}

// fieldsOf returns formats of JSON for each field of a type, at any depth, that has the wanted
// type.
func fieldsOf(of, wanted reflect.Type) (formats []string) {
	switch {
	case of == wanted:
		return []string{"%s"}
	case of.Kind() == reflect.Pointer:
		return fieldsOf(of.Elem(), wanted)
	case of.Kind() == reflect.Slice:
		for _, format := range fieldsOf(of.Elem(), wanted) {
			formats = append(formats, "["+format+"]")
		}
	case of.Kind() == reflect.Map:
		for _, format := range fieldsOf(of.Elem(), wanted) {
			formats = append(formats, `{"key":`+format+`}`)
		}
	case of.Kind() == reflect.Struct:
		for name, index := range akriv0.JSONFields(of) {
			for _, format := range fieldsOf(of.FieldByIndex(index).Type, wanted) {
				formats = append(formats, `{"`+name+`":`+format+`}`)
			}
		}
	}
	return formats
}
