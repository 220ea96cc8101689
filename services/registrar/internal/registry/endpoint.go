package registry

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxSocketPath is the size of sockaddr_un.sun_path without its terminating zero byte.
const maxSocketPath = 107

// Names of handlers are free; these characters are safe in logs, labels and messages.
var (
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$`)
	validHost = regexp.MustCompile(`^[A-Za-z0-9._:%-]{1,253}$`)
)

// ValidateName returns an error that states the rule if the name of a handler is invalid.
func ValidateName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("name %.140q: must be 1 to 127 letters, digits, '.', '_', '/' or '-' and start with a letter or digit", name)
	}
	return nil
}

// NormalizePath returns the path of a unix socket. It accepts a `unix://` scheme, which is not part
// of the contract.
func NormalizePath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	clean := filepath.Clean(path)
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) || strings.HasSuffix(path, "/") || clean == "/" || len(path) > maxSocketPath {
		return "", fmt.Errorf("UDS endpoint %.200q: must be the absolute path of a socket, at most %d bytes long, "+
			"such as /var/lib/akri/udev.sock", endpoint, maxSocketPath)
	}
	return clean, nil
}

// NormalizeHostPort returns `host:port` of a network endpoint, with or without `http://`.
func NormalizeHostPort(endpoint string) (string, error) {
	address := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/")
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 || !validHost.MatchString(host) {
		return "", fmt.Errorf("NETWORK endpoint %.300q: must be host:port or http://host:port, such as 10.0.0.7:10000", endpoint)
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}
