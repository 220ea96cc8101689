package opcuabroker_test

import (
	"math"
	"testing"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/proto/opcuanode"

	opcuabroker "akri.sh/deploy/samples/opcua-broker"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// TestGetValue checks the values that upstream Akri's clients get, and the codes of those that do
// not fit into the response.
func TestGetValue(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  int32
		code  codes.Code
	}{
		"number":       {uint32(71), 71, codes.OK},
		"rounded":      {-1.6, -2, codes.OK},
		"boolean":      {true, 1, codes.OK},
		"largest":      {float64(math.MaxInt32), math.MaxInt32, codes.OK},
		"too large":    {uint32(math.MaxInt32) + 1, 0, codes.OutOfRange},
		"infinite":     {math.Inf(-1), 0, codes.OutOfRange},
		"not a number": {math.NaN(), 0, codes.FailedPrecondition},
		"text":         {"71", 0, codes.FailedPrecondition},
		"array":        {[]int32{71}, 0, codes.FailedPrecondition},
		"bad":          {nil, 0, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []values.Node{{Name: "first", ID: "i=1"}, {Name: "second", ID: "i=2"}}
			store := values.NewStore(nodes, func(values.Value) {})
			data := &ua.DataValue{EncodingMask: ua.DataValueStatusCode, Status: ua.StatusBadSensorFailure}
			if c.value != nil {
				data = &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(c.value)}
			}
			store.Set(0, nodes[0], data)
			response, err := opcuabroker.NewNode("opc.tcp://h:1/", store).GetValue(t.Context(), &opcuanode.ValueRequest{})
			require.Equal(t, c.code, status.Code(err), err)
			require.Equal(t, c.want, response.GetValue())
		})
	}
}
