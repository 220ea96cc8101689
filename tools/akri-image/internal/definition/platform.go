package definition

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
)

// Platform is an operating system and an architecture, by Go's names.
type Platform struct {
	OS   string
	Arch string
}

// DefaultPlatforms are those an image exists for when its definition names none.
func DefaultPlatforms() []Platform {
	return []Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}
}

// Native is the platform of an image that runs on this machine.
func Native() Platform { return Platform{OS: "linux", Arch: runtime.GOARCH} }

// ParsePlatform reads "linux/amd64" or "linux/arm64".
func ParsePlatform(text string) (Platform, error) {
	for _, p := range DefaultPlatforms() {
		if p.String() == text {
			return p, nil
		}
	}
	return Platform{}, fmt.Errorf("unknown platform %q, want one of %v", text, DefaultPlatforms())
}

// String gives the usual form, "linux/amd64".
func (p Platform) String() string { return p.OS + "/" + p.Arch }

// UnmarshalText reads what ParsePlatform reads; flags use it.
func (p *Platform) UnmarshalText(text []byte) error {
	parsed, err := ParsePlatform(string(text))
	*p = parsed
	return err
}

// UnmarshalJSON reads what ParsePlatform reads, and names the key in its refusal.
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

// Offers tells whether d's image exists for p.
func (d Definition) Offers(p Platform) bool { return slices.Contains(d.Platforms, p) }
