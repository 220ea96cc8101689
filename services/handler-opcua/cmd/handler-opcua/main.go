// Command handler-opcua is the Discovery Handler for OPC UA servers.
package main

import (
	"akri.sh/libs/service"
	opcua "akri.sh/services/handler-opcua"
)

func main() {
	service.Main("handler-opcua", "Discovers OPC UA servers.", opcua.New)
}
