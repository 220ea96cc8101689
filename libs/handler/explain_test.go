package handler_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/handler"
	"akri.sh/libs/handler/handlertest"
	"akri.sh/libs/rpctest"
	handlerv1 "akri.sh/proto/akri/handler/v1"
)

// explainer returns closest, and refuses the details "wrong".
type explainer struct {
	handler.Watch
	closest []*handler.NearMiss
}

func (e explainer) Explain(_ context.Context, request handler.Request) ([]*handler.NearMiss, error) {
	if request.Details == "wrong" {
		return nil, handler.Invalid(errors.New("wrong details"))
	}
	return e.closest, nil
}

func TestExplain(t *testing.T) {
	value, clipped := strings.Repeat("ä", 300), strings.Repeat("ä", 256)
	old := slices.Repeat([]*handler.NearMiss{{Device: "x", Missed: "A", Value: &value}}, 7)
	series := slices.Repeat([]*handler.Series{{First: "x", Count: 1}}, 4)
	groups := []*handler.NearMiss{{Device: "x", Series: series, CorrectedDetails: strings.Repeat("x", 17<<10), Mismatches: []*handler.Mismatch{
		{Condition: "A", Found: []string{value, "b", "c", "d"}}, {Condition: "B"},
	}}, {CorrectedDetails: "details", Mismatches: []*handler.Mismatch{{Condition: "C"}}}}
	for name, test := range map[string]struct {
		handler handler.Handler
		details string
		code    codes.Code
	}{
		"devices":       {explainer{watchLists(nil), old}, "d", codes.OK},
		"groups":        {explainer{watchLists(nil), groups}, "d", codes.OK},
		"wrong":         {explainer{watchLists(nil), old}, "wrong", codes.InvalidArgument},
		"not supported": {watchLists(nil), "d", codes.Unimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			directory := handlertest.Directory(t)
			handlertest.NewRegistrar().Serve(t, directory)
			start(t, handler.Flags{DiscoveryHandlersDirectory: directory}, test.handler)
			client := handlerv1.NewExplainServiceClient(rpctest.Dial(t, "unix://"+filepath.Join(directory, "lamp.sock")))
			ctx, cancel := context.WithTimeout(t.Context(), handlertest.Timeout)
			defer cancel()
			response, err := client.Explain(ctx, &handlerv1.ExplainRequest{DiscoveryDetails: test.details}, grpc.WaitForReady(true))
			require.Equal(t, test.code, status.Code(err))
			switch closest := response.GetClosest(); name {
			case "devices":
				require.Len(t, closest, 5)
				require.Equal(t, "A", closest[0].GetMissed())
				require.Equal(t, clipped, closest[0].GetValue())
			case "groups":
				require.Len(t, closest[0].GetSeries(), 3)
				require.Equal(t, []string{clipped, "b", "c"}, closest[0].GetMismatches()[0].GetFound())
				require.Empty(t, closest[0].GetCorrectedDetails())
				require.Equal(t, "details", closest[1].GetCorrectedDetails())
				// for callers that do not have mismatches
				require.Equal(t, "A", closest[0].GetMissed())
				require.Equal(t, clipped, closest[0].GetValue())
				require.Equal(t, "C", closest[1].GetMissed())
				require.Nil(t, closest[1].Value)
			}
		})
	}
}
