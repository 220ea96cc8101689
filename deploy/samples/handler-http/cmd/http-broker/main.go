// Command http-broker serves the state of the device of its Pod, which handler-http has found.
package main

import (
	"log"
	"os"

	"akri.sh/deploy/samples/handler-http/internal/gather"
)

func main() {
	name, url := os.Getenv("HTTP_DEVICE_NAME"), os.Getenv("HTTP_DEVICE_URL")
	if url == "" {
		log.Fatal("HTTP_DEVICE_URL: required: the URL of the device, which Akri sets")
	}
	log.Fatal(gather.Serve(":8083", map[string]string{name: url}))
}
