// Package servers holds the rules of which OPC UA servers are devices, and at which URL each can be reached. It is pure.
package servers

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// scheme is that of OPC UA over TCP, the only transport that is discovered.
const scheme = "opc.tcp"

// defaultPort is that of OPC UA, registered with IANA.
const defaultPort = "4840"

// ParseURL reads a URL that a person configured: it must say its port.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q: want opc.tcp://HOST:PORT[/PATH]: %w", text, errors.Unwrap(err))
	case parsed.Scheme != scheme || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, fmt.Errorf("%q: want opc.tcp://HOST:PORT[/PATH]", text)
	}
	if port, err := strconv.ParseUint(parsed.Port(), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("%q: want a port, from 1 to 65535, as in opc.tcp://HOST:4840", text)
	}
	return parsed, nil
}

// parseAnnounced reads a URL that a server says of itself. It may leave the port out.
func parseAnnounced(text string) (*url.URL, bool) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != scheme || parsed.Hostname() == "" || len(text) > maxURL {
		return nil, false
	}
	return parsed, true
}

// maxURL is what a device id may be long.
const maxURL = 1 << 10

// pick returns the URL to use of those that an application announces: the first of opc.tcp.
func pick(announced []string) (*url.URL, string, bool) {
	for _, text := range announced {
		if parsed, ok := parseAnnounced(text); ok {
			return parsed, text, true
		}
	}
	return nil, "", false
}

// reach is the URL at which an application can be reached that the server at `asked` announced as `announced`. Servers
// often announce a host name that only their own network knows; then the host that did answer stands for it.
//
// Of its own URL a server at an address without a path keeps what it announced as path; an asked URL with a path is
// right as it is. What a discovery server announces is another process with another port.
func reach(asked string, announced *url.URL, text string, own, resolves bool) string {
	if resolves {
		return text
	}
	question, err := ParseURL(asked)
	if err != nil {
		return text
	}
	if !own {
		port := announced.Port()
		if port == "" {
			port = defaultPort
		}
		return scheme + "://" + net.JoinHostPort(question.Hostname(), port) + announced.EscapedPath()
	}
	if strings.Trim(question.Path, "/") != "" {
		return asked
	}
	path := announced.EscapedPath()
	if strings.HasSuffix(asked, "/") {
		path = strings.TrimPrefix(path, "/")
	}
	return asked + path
}
