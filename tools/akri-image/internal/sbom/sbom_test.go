package sbom_test

import (
	"bytes"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/sbom"
)

// information is what `go version -m` prints for a binary after its Go release.
const information = `path	akri.sh/services/x/cmd/x
mod	akri.sh/services/x	(devel)	
dep	akri.sh/libs	v0.1.0
=>	../../libs	(devel)	
dep	github.com/prometheus/common	v0.72.0	h1:tAYsE+sPJxIncDAobm4H5aQjmox9ZxEIIqPbiffa8G4=
dep	example.com/original	v1.0.0
=>	example.com/fork	v1.0.1+incompatible	h1:tAYsE+sPJxIncDAobm4H5aQjmox9ZxEIIqPbiffa8G4=
build	CGO_ENABLED=0
`

func TestModulesOfBinary(t *testing.T) {
	var locations []string
	for _, p := range modules(t) {
		locations = append(locations, p.ToString())
	}
	require.Equal(t, []string{
		"pkg:golang/akri.sh/libs@v1.2.3",
		"pkg:golang/akri.sh/services/x@v1.2.3",
		"pkg:golang/example.com/fork@v1.0.1%2Bincompatible",
		"pkg:golang/github.com/prometheus/common@v0.72.0",
		"pkg:golang/stdlib@1.26.8",
	}, locations)
}

func TestDebianPackageOfLibrary(t *testing.T) {
	loader := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}[runtime.GOARCH]
	pkg, err := sbom.Debian(loader)
	require.NoError(t, err)
	require.Regexp(t, `^pkg:deb/\w+/libc6@\d[^?]+\?arch=`+runtime.GOARCH+`&distro=\w+-[\d.]+$`, pkg.ToString())

	_, err = sbom.Debian("/no/such/file")
	require.EqualError(t, err, "find the Debian package of /no/such/file: no package has it")
}

func TestDocumentIsValidAndReproducible(t *testing.T) {
	packages := modules(t)
	images := []sbom.Image{
		{Digest: hash(t, "a"), Platform: "linux/amd64", Packages: packages},
		{Digest: hash(t, "b"), Platform: "linux/arm64", Packages: packages},
	}
	text, err := sbom.Document("x", "v1.2.3", hash(t, "c"), images)
	require.NoError(t, err)
	again, err := sbom.Document("x", "v1.2.3", hash(t, "c"), images)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again))

	document, err := json.Read(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, spdxlib.ValidateDocument(document))
	require.Len(t, document.Packages, len(images)+len(packages), "both platforms have the same packages")
	require.Equal(t, 2*(1+len(packages)), len(document.Relationships))
	require.Equal(t, []spdx.Checksum{{Algorithm: spdx.SHA256, Value: strings.Repeat("a", 64)}}, document.Packages[0].PackageChecksums)
}

func TestPurpose(t *testing.T) {
	for purpose, image := range map[string]sbom.Image{
		"CONTAINER": {Digest: hash(t, "a"), Platform: "linux/amd64"},
		"ARCHIVE":   {Digest: hash(t, "a"), Platform: "windows/amd64", Archive: true},
	} {
		text, err := sbom.Document("x", "v1.2.3", hash(t, "c"), []sbom.Image{image})
		require.NoError(t, err)
		document, err := json.Read(bytes.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, purpose, document.Packages[0].PrimaryPackagePurpose)
	}
}

// modules returns the sorted modules of the information. Two binaries have the same ones.
func modules(t *testing.T) []sbom.Package {
	t.Helper()
	info, err := debug.ParseBuildInfo(information)
	require.NoError(t, err)
	info.GoVersion = "go1.26.8"
	return sbom.Sorted(append(sbom.Modules(info, "v1.2.3"), sbom.Modules(info, "v1.2.3")...))
}

func hash(t *testing.T, digit string) v1.Hash {
	t.Helper()
	h, err := v1.NewHash("sha256:" + strings.Repeat(digit, 64))
	require.NoError(t, err)
	return h
}
