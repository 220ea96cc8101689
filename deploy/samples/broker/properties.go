package broker

import (
	"regexp"
	"strings"
)

// suffixed matches KEY_<HASH>, where HASH is the digest of the Instance.
var suffixed = regexp.MustCompile(`^(.+)_[0-9A-F]{6}(X[0-9A-F]{6})?$`)

// Properties returns the device properties in an environment. Akri sets each property as KEY and as
// KEY_<HASH>. A variable without such a pair is a property only if it starts with UDEV_ or
// DEBUG_ECHO_.
func Properties(environ []string) map[string]string {
	all := make(map[string]string, len(environ))
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		all[key] = value
	}
	properties := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "UDEV_") || strings.HasPrefix(key, "DEBUG_ECHO_") {
			properties[key] = value
		}
		if match := suffixed.FindStringSubmatch(key); match != nil {
			if plain, paired := all[match[1]]; paired {
				properties[match[1]], properties[key] = plain, value
			}
		}
	}
	return properties
}
