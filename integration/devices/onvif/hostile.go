package onvif

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Datagrams returns datagrams of non-conforming and hostile devices. None of them may harm a
// receiver.
func Datagrams() map[string][]byte {
	match := func(endpoint string) []byte {
		return discoveryMessage("ProbeMatches", "", "<d:ProbeMatches>"+endpoint+"</d:ProbeMatches>", 1)
	}
	entities := `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>`
	return map[string][]byte{
		"empty":              {},
		"not XML":            []byte("\x00\xff\xfe hello"),
		"truncated":          match("<d:ProbeMatch>")[:300],
		"64 KB":              []byte("<a>" + strings.Repeat("x", 60_000) + "</a>"),
		"too deep":           []byte(strings.Repeat("<a>", 10_000)),
		"DTD with entities":  []byte(entities + "<x>&b;</x>"),
		"external entity":    []byte(`<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>`),
		"no match":           match(""),
		"empty match":        match("<d:ProbeMatch/>"),
		"no UUID":            match("<d:ProbeMatch><d:XAddrs>http://127.0.0.1/</d:XAddrs></d:ProbeMatch>"),
		"no address":         match(probeMatch("no-address", "dn:NetworkVideoTransmitter", "")),
		"printer":            match(probeMatch("printer", "wprt:PrintDeviceType", "http://127.0.0.1:1/")),
		"other schemes":      match(probeMatch("schemes", "", "file:///etc/passwd gopher://127.0.0.1/ javascript:x http:// http://u:p@127.0.0.1/ ://")),
		"unusable addresses": match(probeMatch("all", "", "http://0.0.0.0/ http://239.255.255.250/ http://[::]/ http://255.255.255.255/")),
		"many matches":       match(strings.Repeat(probeMatch("many", "", "http://127.0.0.1:1/"), 200)),
		"many addresses":     match(probeMatch("addresses", "", strings.Repeat("http://127.0.0.1:1/ ", 2000))),
		"two bodies":         []byte(head + "<SOAP-ENV:Body/><SOAP-ENV:Body/></SOAP-ENV:Envelope>"),
		"probe":              discoveryMessage("Probe", "", "<d:Probe/>", 1),
	}
}

func probeMatch(uuid, types, addresses string) string {
	return fmt.Sprintf(`<d:ProbeMatch><wsa:EndpointReference><wsa:Address>urn:uuid:%s</wsa:Address></wsa:EndpointReference>`+
		`<d:Types>%s</d:Types><d:XAddrs>%s</d:XAddrs></d:ProbeMatch>`, uuid, types, addresses)
}

// Serve announces a camera with the given device service. It serves until stop is called.
func (f *Fleet) Serve(uuid string, address netip.AddrPort, service http.Handler) (stop func(), err error) {
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: service, ReadHeaderTimeout: time.Minute}
	f.tasks.Go(func() { _ = server.Serve(listener) })
	camera := &Camera{UUID: uuid, Address: address}
	return func() { _ = server.Close() }, f.Hello(camera)
}

// Services returns device services that are not cameras and must not block a client.
func Services() map[string]http.Handler {
	write := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
	}
	return map[string]http.Handler{
		"web":      write("<html><body>It works!"),
		"empty":    write(""),
		"bomb":     write(head + "<SOAP-ENV:Body>" + strings.Repeat("<a/>", 1<<20)),
		"deep":     write(strings.Repeat("<a>", 100_000)),
		"error":    http.NotFoundHandler(),
		"redirect": http.RedirectHandler("http://127.0.0.1:1/", http.StatusFound),
		"silent":   http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"endless": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}),
		"slow": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}),
		"other": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			reply(w, http.StatusInternalServerError, fault("ter:ActionNotSupported", "not a camera"))
		}),
	}
}
