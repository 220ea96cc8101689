package discovery

import (
	"net"
	"net/url"
	"strings"

	details "akri.sh/libs/details/opcua"
)

const (
	// defaultPort is the port of OPC UA, registered with IANA.
	defaultPort = "4840"
	// maxURLLength limits the length of a device id.
	maxURLLength = 1 << 10
)

// firstURL returns the first usable URL that an application announces, parsed and as text. The port
// is optional.
func firstURL(announced []string) (*url.URL, string, bool) {
	for _, text := range announced {
		parsed, err := url.Parse(text)
		if err == nil && parsed.Scheme == details.Scheme && parsed.Hostname() != "" && len(text) <= maxURLLength {
			return parsed, text, true
		}
	}
	return nil, "", false
}

// reachableURL returns the URL of an application whose announced host name has no address. Many
// servers announce a name that only their own network resolves; the host of the queried URL
// replaces it.
//
// self means that the queried server announced itself. If the queried URL has a path, it is the
// result; otherwise it gets the announced path. An application that a discovery server announces
// has its own port and path.
func reachableURL(queried string, announced *url.URL, text string, self bool) string {
	base, err := details.ParseURL(queried)
	if err != nil {
		return text
	}
	if !self {
		port := announced.Port()
		if port == "" {
			port = defaultPort
		}
		return details.Scheme + "://" + net.JoinHostPort(base.Hostname(), port) + announced.EscapedPath()
	}
	if strings.Trim(base.Path, "/") != "" {
		return queried
	}
	path := announced.EscapedPath()
	if strings.HasSuffix(queried, "/") {
		path = strings.TrimPrefix(path, "/")
	}
	return queried + path
}
