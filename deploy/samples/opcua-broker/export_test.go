package opcuabroker

import (
	"akri.sh/proto/opcuanode"

	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

// NewNode returns the server of OpcuaNode/GetValue.
func NewNode(url string, store *values.Store) opcuanode.OpcuaNodeServer {
	return node{url: url, store: store}
}
