// Command probe runs in the pods of the cluster's tests.
//
//	probe serve            serve the pod's name on :8080
//	probe webhook          reject all admission requests on :8443, with the certificate in $CERT and $KEY
//	probe get URL          print the response of URL
//	probe lookup NAME      print the addresses of NAME
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("the command must be serve, webhook, get or lookup")
	}
	switch args[0] {
	case "serve":
		return serve()
	case "webhook":
		return webhook()
	case "get":
		return get(args[1])
	case "lookup":
		return lookup(args[1])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func serve() error {
	fmt.Println("serving")
	return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, os.Getenv("HOSTNAME"))
	}))
}

func webhook() error {
	cert, err := tls.X509KeyPair([]byte(os.Getenv("CERT")), []byte(os.Getenv("KEY")))
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	server := &http.Server{
		Addr: ":8443", Handler: http.HandlerFunc(reject), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
		ReadHeaderTimeout: time.Second,
	}
	return server.ListenAndServeTLS("", "")
}

func reject(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct{ UID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",
		"response":{"uid":%q,"allowed":false,"status":{"message":"rejected by probe"}}}`, review.Request.UID)
}

func get(url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	fmt.Print(strings.Join(addresses, " "))
	return nil
}
