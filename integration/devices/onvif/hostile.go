package onvif

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Datagrams are what odd and hostile devices say: none of them may harm who hears it.
func Datagrams() map[string][]byte {
	match := func(endpoint string) []byte {
		return discoveryMessage("ProbeMatches", "", "<d:ProbeMatches>"+endpoint+"</d:ProbeMatches>", 1)
	}
	entities := `<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>`
	return map[string][]byte{
		"nothing":            {},
		"not XML":            []byte("\x00\xff\xfe hello"),
		"cut off":            match("<d:ProbeMatch>")[:300],
		"64 KB":              []byte("<a>" + strings.Repeat("x", 60_000) + "</a>"),
		"nested":             []byte(strings.Repeat("<a>", 10_000)),
		"entities":           []byte(entities + "<x>&b;</x>"),
		"an external entity": []byte(`<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>`),
		"no match":           match(""),
		"an empty match":     match("<d:ProbeMatch/>"),
		"no identity":        match("<d:ProbeMatch><d:XAddrs>http://127.0.0.1/</d:XAddrs></d:ProbeMatch>"),
		"no address":         match(described("no-address", "dn:NetworkVideoTransmitter", "")),
		"a printer":          match(described("printer", "wprt:PrintDeviceType", "http://127.0.0.1:1/")),
		"other schemes":      match(described("schemes", "", "file:///etc/passwd gopher://127.0.0.1/ javascript:x http:// http://u:p@127.0.0.1/ ://")),
		"addresses of all":   match(described("all", "", "http://0.0.0.0/ http://239.255.255.250/ http://[::]/ http://255.255.255.255/")),
		"many matches":       match(strings.Repeat(described("many", "", "http://127.0.0.1:1/"), 200)),
		"many addresses":     match(described("addresses", "", strings.Repeat("http://127.0.0.1:1/ ", 2000))),
		"two bodies":         []byte(head + "<SOAP-ENV:Body/><SOAP-ENV:Body/></SOAP-ENV:Envelope>"),
		"a probe":            discoveryMessage("Probe", "", "<d:Probe/>", 1),
	}
}

func described(uuid, types, addresses string) string {
	return fmt.Sprintf(`<d:ProbeMatch><wsa:EndpointReference><wsa:Address>urn:uuid:%s</wsa:Address></wsa:EndpointReference>`+
		`<d:Types>%s</d:Types><d:XAddrs>%s</d:XAddrs></d:ProbeMatch>`, uuid, types, addresses)
}

// Impostor announces a camera whose device service is the handler, and serves it until stop is called.
func (f *Fleet) Impostor(uuid string, address netip.AddrPort, service http.Handler) (stop func(), err error) {
	listener, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: service, ReadHeaderTimeout: time.Minute}
	f.work.Go(func() { _ = server.Serve(listener) })
	camera := &Camera{UUID: uuid, Address: address}
	return func() { _ = server.Close() }, f.Hello(camera)
}

// Services are device services that must not be taken for cameras, nor hold up who asks them.
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
