// Command file-server serves a folder over HTTP: the endpoint that the tutorial's handler asks.
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: file-server ADDRESS FOLDER")
	}
	server := &http.Server{Addr: os.Args[1], Handler: http.FileServer(http.Dir(os.Args[2])), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}
