package definition

import (
	"encoding/json"
	"fmt"
	"path"
	"runtime"
	"slices"
)

// Platform is an operating system and an architecture, as Go names them. Variant is the version of
// the architecture if it has several.
type Platform struct {
	OS      string
	Arch    string
	Variant string
}

// DefaultPlatforms are the platforms of an image whose definition lists none.
func DefaultPlatforms() []Platform {
	return []Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "linux", Arch: "arm", Variant: "v7"}}
}

// Native is the platform of this machine's images.
func Native() Platform {
	for _, known := range DefaultPlatforms() {
		if known.Arch == runtime.GOARCH {
			return known
		}
	}
	return Platform{OS: "linux", Arch: runtime.GOARCH}
}

// String returns the usual form, such as "linux/amd64" or "linux/arm/v7".
func (p Platform) String() string { return path.Join(p.OS, p.Arch, p.Variant) }

// Machine returns the architecture as part of a file name, such as "amd64" or "armv7".
func (p Platform) Machine() string { return p.Arch + p.Variant }

// UnmarshalText reads "linux/amd64", "linux/arm64" or "linux/arm/v7", also for flags.
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
