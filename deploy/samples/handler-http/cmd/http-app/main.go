// Command http-app serves what the brokers behind its arguments, which are names of Services, know
// of their devices.
package main

import (
	"log"
	"os"

	"akri.sh/deploy/samples/handler-http/internal/gather"
)

func main() {
	brokers := map[string]string{}
	for _, service := range os.Args[1:] {
		brokers[service] = "http://" + service
	}
	log.Fatal(gather.Serve(":8083", brokers))
}
