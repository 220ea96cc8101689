// Command file-server serves a directory over HTTP. It is the endpoint and the devices of
// docs/tutorials/handler-to-application.md.
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: file-server ADDRESS DIRECTORY")
	}
	server := &http.Server{Addr: os.Args[1], Handler: http.FileServer(http.Dir(os.Args[2])), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
