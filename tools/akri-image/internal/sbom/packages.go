package sbom

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"runtime/debug"
	"strings"

	"github.com/package-url/packageurl-go"
)

// Modules returns the Go modules of a binary and the Go release that built it. Modules of this
// repository have no version of their own and get version.
func Modules(info *debug.BuildInfo, version string) []Package {
	found := []Package{goModule("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
		switch {
		case module.Replace == nil && module.Version != devel:
			found = append(found, goModule(module.Path, module.Version))
		case module.Replace != nil && module.Replace.Version != devel:
			found = append(found, goModule(module.Replace.Path, module.Replace.Version))
		default:
			found = append(found, goModule(module.Path, version))
		}
	}
	return found
}

// devel is the version of a module that was built in a directory.
const devel = "(devel)"

func goModule(name, version string) Package {
	return *packageurl.NewPackageURL(packageurl.TypeGolang, strings.TrimSuffix(path.Dir(name), "."), path.Base(name), version, nil, "")
}

// Debian returns the Debian package of a file on this machine.
func Debian(file string) (Package, error) {
	owner, err := ownerOf(file)
	if err != nil {
		return Package{}, err
	}
	text, err := exec.Command("dpkg-query", "--show", "--showformat", "${Package}\n${Version}\n${Architecture}", owner).Output()
	if err != nil {
		return Package{}, fmt.Errorf("read version of %s: %w", owner, err)
	}
	distribution, err := release("/etc/os-release")
	if err != nil {
		return Package{}, err
	}
	fields := strings.Split(string(text), "\n")
	qualifiers := packageurl.QualifiersFromMap(map[string]string{
		"arch": fields[2], "distro": distribution["ID"] + "-" + distribution["VERSION_ID"],
	})
	return *packageurl.NewPackageURL(packageurl.TypeDebian, distribution["ID"], fields[0], fields[1], qualifiers, ""), nil
}

// ownerOf returns the package of a file, such as libc6:amd64. /lib is a link to /usr/lib, and
// packages use either name.
func ownerOf(file string) (string, error) {
	for _, name := range []string{file, strings.TrimPrefix(file, "/usr"), "/usr" + file} {
		if text, err := exec.Command("dpkg-query", "--search", name).Output(); err == nil {
			owner, _, _ := strings.Cut(string(text), ": ")
			return owner, nil
		}
	}
	return "", fmt.Errorf("find the Debian package of %s: no package has it", file)
}

// release reads the distribution's name and version.
func release(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read distribution: %w", err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"`)
	}
	return values, nil
}
