package opcuabroker

import (
	"context"
	"encoding/json"
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/proto/opcuanode"

	"akri.sh/deploy/samples/opcua-broker/internal/opcua"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// list is the response of GET /values.
type list struct {
	Server    string         `json:"server"`
	Connected bool           `json:"connected"`
	Error     string         `json:"error,omitempty"`
	Values    []values.Value `json:"values"`
}

func handler(url string, store *values.Store, client *opcua.Client, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /values", func(w http.ResponseWriter, _ *http.Request) {
		all := list{Server: url, Connected: true, Values: store.All()}
		if err := client.Ready(); err != nil {
			all.Connected, all.Error = false, err.Error()
		}
		respond(w, all)
	})
	mux.HandleFunc("GET /values/{name}", func(w http.ResponseWriter, r *http.Request) {
		value, found := store.Get(r.PathValue("name"))
		if !found {
			http.Error(w, "no node has this name: GET /values returns all", http.StatusNotFound)
			return
		}
		respond(w, value)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

func respond(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(content) // the client may have closed the connection
}

// node serves the first node of the settings as upstream Akri's broker does.
type node struct {
	opcuanode.UnimplementedOpcuaNodeServer

	url   string
	store *values.Store
}

// GetValue implements opcuanode.OpcuaNodeServer.
func (n node) GetValue(context.Context, *opcuanode.ValueRequest) (*opcuanode.ValueResponse, error) {
	value := n.store.All()[0]
	if value.Quality == values.Bad {
		return nil, status.Errorf(codes.Unavailable, "%s of %s has no value: %s", value.Name, n.url, value.Status)
	}
	number, ok := value.Number()
	if !ok || math.IsNaN(number) {
		return nil, status.Errorf(codes.FailedPrecondition, "%s of %s is not a number: its type is %s", value.Name, n.url, value.Type)
	}
	rounded := math.Round(number)
	if rounded < math.MinInt32 || rounded > math.MaxInt32 {
		return nil, status.Errorf(codes.OutOfRange, "%s of %s is %v, which does not fit into 32 bits", value.Name, n.url, number)
	}
	return &opcuanode.ValueResponse{Value: int32(rounded), OpcuaServer: n.url}, nil
}
