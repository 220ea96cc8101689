package broker

import (
	"regexp"
	"strings"
)

// suffixed is a property's second name: the first, and the digest of the
// Instance that it belongs to.
var suffixed = regexp.MustCompile(`^(.+)_[0-9A-F]{6}$`)

// Properties picks from an environment what Akri put there. Akri sets each
// property twice, as KEY and as KEY_<HASH>, and that pair is how it is told
// from everything else; the well-known properties are taken without one too.
func Properties(environ []string) map[string]string {
	all := make(map[string]string, len(environ))
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		all[key] = value
	}
	picked := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "UDEV_") || strings.HasPrefix(key, "DEBUG_ECHO_") {
			picked[key] = value
		}
		if match := suffixed.FindStringSubmatch(key); match != nil {
			if first, paired := all[match[1]]; paired {
				picked[match[1]], picked[key] = first, value
			}
		}
	}
	return picked
}
