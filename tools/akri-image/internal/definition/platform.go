package definition

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
)

// Platform is an operating system and an architecture, as Go names them.
type Platform struct {
	OS   string
	Arch string
}

// DefaultPlatforms are the platforms of an image whose definition lists none.
func DefaultPlatforms() []Platform {
	return []Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}
}

// Native is the platform of this machine's images.
func Native() Platform { return Platform{OS: "linux", Arch: runtime.GOARCH} }

// String returns the usual form, such as "linux/amd64".
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// UnmarshalText reads "linux/amd64" or "linux/arm64", also for flags.
func (p *Platform) UnmarshalText(text []byte) error {
	for _, known := range DefaultPlatforms() {
		if known.String() == string(text) {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("unknown platform %q; use one of %v", text, DefaultPlatforms())
}

// UnmarshalJSON reads like UnmarshalText. Its error names the key.
func (p *Platform) UnmarshalJSON(text []byte) error {
	var value string
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Errorf("platforms: %w", err)
	}
	if err := p.UnmarshalText([]byte(value)); err != nil {
		return fmt.Errorf("platforms: %w", err)
	}
	return nil
}

// Offers reports whether the image exists for the platform.
func (d Definition) Offers(p Platform) bool { return slices.Contains(d.Platforms, p) }
