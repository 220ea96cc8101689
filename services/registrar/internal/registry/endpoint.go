package registry

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxSocketPath is what fits into sockaddr_un with room for the byte that ends it.
const maxSocketPath = 107

// Handlers of other vendors choose their names freely; these characters are safe in logs, labels and messages.
var (
	validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,126}$`)
	validHost = regexp.MustCompile(`^[A-Za-z0-9._:%-]{1,253}$`)
)

// CheckName refuses a handler name that Configurations could not say.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("name %.140q: want 1 to 127 letters, digits, '.', '_', '/' or '-', the first a letter or digit", name)
	}
	return nil
}

// NormalizePath returns the path of a unix socket. A `unix://` scheme is accepted, though handlers should not write it.
func NormalizePath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	clean := filepath.Clean(path)
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) || strings.HasSuffix(path, "/") || clean == "/" || len(path) > maxSocketPath {
		return "", fmt.Errorf("UDS endpoint %.200q: want the absolute path of a socket, of at most %d bytes, such as /var/lib/akri/udev.sock",
			endpoint, maxSocketPath)
	}
	return clean, nil
}

// NormalizeHostPort returns `host:port` of a network endpoint, with or without `http://`.
func NormalizeHostPort(endpoint string) (string, error) {
	address := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/")
	host, port, err := net.SplitHostPort(address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || number == 0 || !validHost.MatchString(host) {
		return "", fmt.Errorf("NETWORK endpoint %.300q: want host:port or http://host:port, such as 10.0.0.7:10000", endpoint)
	}
	return net.JoinHostPort(host, strconv.FormatUint(number, 10)), nil
}
