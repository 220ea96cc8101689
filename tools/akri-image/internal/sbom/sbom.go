// Package sbom describes what an image or an archive is made of, as an SPDX 2.3 document: the Go
// modules of its binaries, the Go release, and the Debian packages of its libraries.
package sbom

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"

	"akri.sh/tools/akri-image/internal/rootfs"
)

// Package is a Go module or a Debian package.
type Package = packageurl.PackageURL

// Image is the image of one platform, or an archive for it.
type Image struct {
	Digest   v1.Hash
	Platform string
	Packages []Package
	Archive  bool
}

// purpose returns the purpose in the terms of SPDX.
func (i Image) purpose() string {
	if i.Archive {
		return "ARCHIVE"
	}
	return "CONTAINER"
}

// Document returns the SPDX document of an image with one or several platforms. Equal images give
// equal documents, so the document has no time.
func Document(name, version string, digest v1.Hash, images []Image) ([]byte, error) {
	d := document{spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      name,
		DocumentNamespace: "https://akri.sh/spdx/" + name + "-" + digest.Hex,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "akri-image"}},
			Created:  rootfs.Epoch.Format(time.RFC3339),
		},
	}}
	for _, image := range images {
		id := d.addImage(name, version, image)
		for _, p := range image.Packages {
			d.addRelation(id, common.TypeRelationshipContains, d.addPackage(p))
		}
	}
	var out bytes.Buffer
	if err := json.Write(&d.Document, &out, json.Indent(" ")); err != nil {
		return nil, fmt.Errorf("write SBOM of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

type document struct{ spdx.Document }

func (d *document) addImage(name, version string, image Image) common.ElementID {
	id := common.ElementID("Image-" + strings.ReplaceAll(image.Platform, "/", "-"))
	d.Packages = append(d.Packages, &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             name,
		PackageVersion:          version,
		PackageDownloadLocation: "NOASSERTION",
		PackageComment:          image.Platform,
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: image.Digest.Hex}},
		PrimaryPackagePurpose:   image.purpose(),
	})
	d.addRelation(d.SPDXIdentifier, common.TypeRelationshipDescribe, id)
	return id
}

// addPackage adds a package once. The images of two platforms share most of them.
func (d *document) addPackage(p Package) common.ElementID {
	location := p.ToString()
	for _, known := range d.Packages {
		if len(known.PackageExternalReferences) > 0 && known.PackageExternalReferences[0].Locator == location {
			return known.PackageSPDXIdentifier
		}
	}
	id := common.ElementID(fmt.Sprintf("Package-%d", len(d.Packages)))
	d.Packages = append(d.Packages, &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             moduleName(p),
		PackageVersion:          p.Version,
		PackageDownloadLocation: "NOASSERTION",
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: location,
		}},
	})
	return id
}

func (d *document) addRelation(from common.ElementID, relation string, to common.ElementID) {
	d.Relationships = append(d.Relationships, &spdx.Relationship{
		RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)), Relationship: relation,
	})
}

// moduleName returns the whole path of a Go module, and the name of a Debian package.
func moduleName(p Package) string {
	if p.Type == packageurl.TypeGolang && p.Namespace != "" {
		return p.Namespace + "/" + p.Name
	}
	return p.Name
}

// Sorted returns the packages sorted and without duplicates.
func Sorted(packages []Package) []Package {
	order := func(a, b Package) int { return cmp.Compare(a.ToString(), b.ToString()) }
	same := func(a, b Package) bool { return order(a, b) == 0 }
	return slices.CompactFunc(slices.SortedFunc(slices.Values(packages), order), same)
}
