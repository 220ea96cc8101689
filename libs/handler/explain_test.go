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
	value := strings.Repeat("ä", 300)
	misses := slices.Repeat([]*handler.NearMiss{{Device: "x", Missed: "A", Value: &value}}, 7)
	for name, test := range map[string]struct {
		handler handler.Handler
		details string
		code    codes.Code
	}{
		"limited":       {explainer{watchLists(nil), misses}, "d", codes.OK},
		"wrong":         {explainer{watchLists(nil), misses}, "wrong", codes.InvalidArgument},
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
			if test.code == codes.OK {
				require.Len(t, response.GetClosest(), 5)
				require.Equal(t, strings.Repeat("ä", 256), response.GetClosest()[0].GetValue())
			}
		})
	}
}
