// Command handler-onvif discovers ONVIF cameras.
package main

import (
	"akri.sh/libs/service"
	onvif "akri.sh/services/handler-onvif"
)

func main() {
	service.Main("handler-onvif", "Discovers ONVIF cameras.", onvif.New)
}
