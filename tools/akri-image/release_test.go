package main_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	root   = "../.."
	cosign = root + "/bin/cosign"
)

// workflow is the environment of the release job.
var workflow = []string{
	"GITHUB_SERVER_URL=https://github.com",
	"GITHUB_REPOSITORY=akri-mesh/akri",
	"GITHUB_REF=refs/tags/v1.2.3",
	"GITHUB_WORKFLOW_REF=akri-mesh/akri/.github/workflows/release.yml@refs/tags/v1.2.3",
	"GITHUB_RUN_ID=7",
	"GITHUB_RUN_ATTEMPT=2",
}

// TestRelease makes a release with small programs as the images of all services, in a registry of
// this process and with files for downloads, signed with a key, and verifies it as SECURITY.md
// describes.
func TestRelease(t *testing.T) {
	r := newRelease(t)
	t.Run("signatures", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(r.dir, "*.digest"))
		require.NoError(t, err)
		require.Len(t, files, len(services(t))+2, "all images and two charts")
		for _, file := range files {
			require.NoError(t, r.verify(t, reference(t, file)))
		}
	})
	t.Run("provenance", func(t *testing.T) {
		for _, subject := range []string{"registrar", "chart-akri"} {
			var provenance struct {
				BuildDefinition struct {
					ExternalParameters   struct{ Workflow map[string]string }
					ResolvedDependencies []struct{ Digest map[string]string }
				}
				RunDetails struct {
					Builder  struct{ ID string }
					Metadata struct{ InvocationID string }
				}
			}
			r.predicate(t, "slsaprovenance1", subject, &provenance)
			repository := "https://github.com/akri-mesh/akri"
			require.Equal(t, map[string]string{
				"ref": "refs/tags/v1.2.3", "repository": repository, "path": ".github/workflows/release.yml",
			}, provenance.BuildDefinition.ExternalParameters.Workflow)
			require.Regexp(t, "^[0-9a-f]{40}$", provenance.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"])
			require.Equal(t, repository+"/.github/workflows/release.yml@refs/tags/v1.2.3", provenance.RunDetails.Builder.ID)
			require.Equal(t, repository+"/actions/runs/7/attempts/2", provenance.RunDetails.Metadata.InvocationID)
		}
	})
	t.Run("sbom", func(t *testing.T) {
		require.Equal(t, []string{"example.com/hello", "stdlib"}, r.packages(t, "registrar"))
		require.Equal(t, []string{"libc6", "libudev1", "example.com/udev", "stdlib"}, r.packages(t, "handler-udev"))
	})
	t.Run("charts refer to images by digest", func(t *testing.T) {
		images := r.images(t)
		require.NotEmpty(t, images)
		for service, image := range images {
			tagged := strings.Replace(reference(t, r.file(service)), "@", ":v1.2.3@", 1)
			require.Equal(t, tagged, image)
		}
		require.Equal(t, r.registry+"/registrar:v2", r.images(t, "global.image.tag=v2")["registrar"], "the user's tag has no digest")
	})
	t.Run("files", func(t *testing.T) { checkFiles(t, r) })
	t.Run("documented commands", func(t *testing.T) {
		require.Len(t, documentedCommands(t), 4)
		for _, commands := range documentedCommands(t) {
			r.shell(t, strings.ReplaceAll(commands, "ghcr.io/akri-mesh", r.registry))
		}
	})
	t.Run("other key", func(t *testing.T) {
		other := r.with("COSIGN_KEY=" + r.keyPair(t) + ".pub")
		require.ErrorContains(t, other.verify(t, reference(t, r.file("registrar"))), "signature")
	})
	t.Run("other image under the tag", func(t *testing.T) {
		ref := r.tamper(t, "agent")
		require.ErrorContains(t, r.verify(t, ref.String()), "no signatures found")
	})
	t.Run("signature of another image", func(t *testing.T) {
		ref := r.tamper(t, "cleanup")
		r.moveSignatures(t, "cleanup", ref)
		require.ErrorContains(t, r.verify(t, ref.String()), "digest")
		_, err := r.output(t, cosign, "verify-attestation", "--type", "slsaprovenance1", ref.String())
		require.ErrorContains(t, err, "digest")
	})
}

// checkFiles checks that each file for downloads is signed, and that a change of it is found.
func checkFiles(t *testing.T, r release) {
	for _, name := range downloads {
		file := filepath.Join(r.files(), name)
		signature := []string{"verify-blob", "--bundle", file + ".sigstore.json"}
		provenance := []string{"verify-blob-attestation", "--type", "slsaprovenance1", "--bundle", file + ".provenance.sigstore.json"}
		tampered := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(tampered, []byte("other"), 0o600))
		for _, verify := range [][]string{signature, provenance} {
			_, err := r.output(t, cosign, append(verify, file)...)
			require.NoError(t, err)
			_, err = r.output(t, cosign, append(verify, tampered)...)
			require.ErrorContains(t, err, "verify signature")
			_, err = r.with("COSIGN_KEY="+r.keyPair(t)+".pub").output(t, cosign, append(verify, file)...)
			require.ErrorContains(t, err, "verify signature")
		}
	}
	require.NoFileExists(t, filepath.Join(r.files(), "akri.yaml.sbom.sigstore.json"))
	contents := r.shell(t, "cosign verify-blob-attestation --type spdxjson --bundle "+downloads[1]+".sbom.sigstore.json "+downloads[1]+"\n"+
		`jq '.dsseEnvelope.payload | @base64d | fromjson | .predicate.packages[] | .name, .primaryPackagePurpose, .checksums[0].checksumValue' `+
		downloads[1]+".sbom.sigstore.json")
	for _, want := range []string{"ARCHIVE", "stdlib", "akri.sh/tools/akri-image", fmt.Sprintf("%x", sha256.Sum256([]byte(downloads[1])))} {
		require.Contains(t, contents, strconv.Quote(want))
	}
	text := r.shell(t, `jq '.dsseEnvelope.payload | @base64d | fromjson' akri.yaml.provenance.sigstore.json`)
	require.Contains(t, text, "https://github.com/akri-mesh/akri/actions/runs/7/attempts/2")
}

// documentedCommands returns the commands in SECURITY.md that verify a release.
func documentedCommands(t *testing.T) []string {
	t.Helper()
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(securityPolicy(t), -1) {
		if strings.Contains(match[1], "cosign verify") {
			blocks = append(blocks, match[1])
		}
	}
	return blocks
}

func securityPolicy(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(root + "/SECURITY.md")
	require.NoError(t, err)
	return string(text)
}

// TestReleaseWorkflow checks that each job which publishes something can sign, with the identity
// that SECURITY.md names, and that files are signed before they are published.
func TestReleaseWorkflow(t *testing.T) {
	text, err := os.ReadFile(root + "/.github/workflows/release.yml")
	require.NoError(t, err)
	var content struct {
		Jobs map[string]struct {
			Permissions map[string]string
			Steps       []struct{ Run string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &content))
	publishing := 0
	for name, job := range content.Jobs {
		if slices.Contains(slices.Collect(maps.Values(job.Permissions)), "write") {
			publishing++
			require.Equal(t, "write", job.Permissions["id-token"], name)
		}
	}
	require.Equal(t, 2, publishing)

	var commands []string
	for _, step := range content.Jobs["kubectl-akri"].Steps {
		if step.Run != "" {
			commands = append(commands, strings.Join(strings.Fields(step.Run)[:2], " "))
		}
	}
	requireOrder(t, text)
	require.Equal(t, []string{"make release-kubectl-akri", "make sign-kubectl-akri", "gh release"}, commands)
	identity := regexp.MustCompile(`IDENTITY_REGEXP='(.*)'`).FindStringSubmatch(securityPolicy(t))[1]
	require.Regexp(t, identity, "https://github.com/"+strings.TrimPrefix(workflow[3], "GITHUB_WORKFLOW_REF="))
}

// release is a signed release in a registry of this process.
type release struct {
	registry string
	dir      string
	remote   remote.Option
	env      []string
}

func newRelease(t *testing.T) release {
	t.Helper()
	logger := log.New(io.Discard, "", 0)
	// As in GitHub's registry, signatures are found by the tag of their subject, not by the API.
	server := httptest.NewTLSServer(registry.New(registry.Logger(logger)))
	t.Cleanup(server.Close)
	r := release{
		registry: strings.TrimPrefix(server.URL, "https://") + "/akri-mesh",
		dir:      t.TempDir(),
		remote:   remote.WithTransport(server.Client().Transport),
		env:      []string{"SSL_CERT_FILE=" + certificate(t, server)},
	}
	tool := compile(t)
	r.run(t, tool.path, "push", "--definitions", definitionsOfServices(t), "--work", tool.work, "--platform", "linux/"+runtime.GOARCH,
		"--registry", r.registry, "--tag", "v1.2.3", "--version", "v1.2.3", "--out", r.dir)
	r.run(t, root+"/tools/release-charts.sh", helm(t), "v1.2.3", r.registry, r.dir)
	config := filepath.Join(t.TempDir(), "signing-config.json")
	r.run(t, cosign, "signing-config", "create", "--out", config)
	key := r.keyPair(t)
	signing := r.with(workflow...).with("COSIGN_KEY="+key+".key", "COSIGN_PASSWORD=", "COSIGN_SIGNING_CONFIG="+config)
	signing.run(t, root+"/tools/release-sign.sh", r.dir)
	require.NoError(t, os.Mkdir(r.files(), 0o755))
	for _, file := range downloads {
		require.NoError(t, os.WriteFile(filepath.Join(r.files(), file), []byte(file), 0o600))
	}
	archive := filepath.Join(r.files(), downloads[1])
	document := r.run(t, tool.path, "sbom", "--version", "v1.2.3", "--platform", "linux/amd64", tool.path, archive)
	require.NoError(t, os.Mkdir(r.files()+".spdx", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(r.files()+".spdx", downloads[1]+".spdx.json"), []byte(document), 0o600))
	signing.run(t, root+"/tools/release-sign-files.sh", r.files())
	return r.with("COSIGN_KEY="+key+".pub", "COSIGN_INSECURE_IGNORE_TLOG=true")
}

// downloads are files as release-kubectl-akri.sh writes them.
var downloads = []string{"akri.yaml", "kubectl-akri-linux-amd64.tar.gz"}

// files returns the directory with the downloads.
func (r release) files() string { return filepath.Join(r.dir, "kubectl-akri") }

// shell runs commands in the directory with the downloads.
func (r release) shell(t *testing.T, commands string) string {
	t.Helper()
	return r.run(t, "bash", "-euo", "pipefail", "-c", "cd "+r.files()+"\n"+commands)
}

// certificate writes the certificate of the server to a file.
func certificate(t *testing.T, server *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}

// with returns the release with additional variables in the environment of commands.
func (r release) with(variables ...string) release {
	r.env = append(slices.Clip(r.env), variables...)
	return r
}

func (r release) file(subject string) string { return filepath.Join(r.dir, subject+".digest") }

func (r release) verify(t *testing.T, reference string) error {
	t.Helper()
	_, err := r.output(t, cosign, "verify", reference)
	return err
}

// predicate decodes the verified attestation.
func (r release) predicate(t *testing.T, kind, subject string, into any) {
	t.Helper()
	text := r.run(t, cosign, "verify-attestation", "--type", kind, reference(t, r.file(subject)))
	var envelope struct{ Payload string }
	require.NoError(t, json.Unmarshal([]byte(text), &envelope))
	payload, err := base64.StdEncoding.DecodeString(envelope.Payload)
	require.NoError(t, err)
	statement := struct{ Predicate any }{into}
	require.NoError(t, json.Unmarshal(payload, &statement))
}

// packages returns the names of the packages in the SBOM.
func (r release) packages(t *testing.T, image string) []string {
	t.Helper()
	var document struct {
		Packages []struct {
			Name    string
			Purpose string `json:"primaryPackagePurpose"`
		}
	}
	r.predicate(t, "spdxjson", image, &document)
	var names []string
	for _, p := range document.Packages {
		if p.Purpose != "CONTAINER" {
			names = append(names, p.Name)
		}
	}
	return names
}

// images returns the images in the rendered chart by service.
func (r release) images(t *testing.T, values ...string) map[string]string {
	t.Helper()
	args := []string{"template", "akri", "oci://" + r.registry + "/charts/akri", "--version", "1.2.3"}
	for _, service := range services(t) {
		if strings.HasPrefix(service, "handler-") {
			values = append(values, service+".enabled=true")
		}
	}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	text := r.run(t, helm(t), args...)
	images := map[string]string{}
	for _, match := range regexp.MustCompile(`image: (\S+/akri-mesh/([^:]+):\S+)`).FindAllStringSubmatch(text, -1) {
		images[match[2]] = match[1]
	}
	return images
}

// tamper pushes another image to the tag.
func (r release) tamper(t *testing.T, image string) name.Tag {
	t.Helper()
	ref, err := name.NewTag(r.registry + "/" + image + ":v1.2.3")
	require.NoError(t, err)
	index, err := remote.Index(ref, r.remote)
	require.NoError(t, err)
	changed, ok := mutate.Annotations(index, map[string]string{"changed": "yes"}).(v1.ImageIndex)
	require.True(t, ok)
	require.NoError(t, remote.WriteIndex(ref, changed, r.remote))
	return ref
}

// moveSignatures attaches the signatures of a released image to the image of the tag.
func (r release) moveSignatures(t *testing.T, image string, to name.Tag) {
	t.Helper()
	from, err := name.NewDigest(reference(t, r.file(image)))
	require.NoError(t, err)
	target, err := remote.Head(to, r.remote)
	require.NoError(t, err)
	referrers, err := remote.Referrers(from, r.remote)
	require.NoError(t, err)
	manifest, err := referrers.IndexManifest()
	require.NoError(t, err)
	require.NotEmpty(t, manifest.Manifests)
	for _, signature := range manifest.Manifests {
		img, err := remote.Image(from.Context().Digest(signature.Digest.String()), r.remote)
		require.NoError(t, err)
		moved, ok := mutate.Subject(img, *target).(v1.Image)
		require.True(t, ok)
		digest, err := moved.Digest()
		require.NoError(t, err)
		require.NoError(t, remote.Write(to.Context().Digest(digest.String()), moved, r.remote))
	}
}

// definitionsOfServices writes image definitions with the names of the services.
func definitionsOfServices(t *testing.T) string {
	t.Helper()
	repository := t.TempDir()
	require.NoError(t, os.CopyFS(repository, os.DirFS("testdata/repository")))
	images := filepath.Join(repository, "services")
	require.NoError(t, os.Mkdir(images, 0o755))
	for _, service := range services(t) {
		definition := "name: " + service + "\ndescription: a test\npackage: hello\n"
		if service == "handler-udev" {
			definition = "name: " + service + "\ndescription: a test\npackage: udev\ncgo:\n  packages: [libudev-dev]\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(images, service+".yaml"), []byte(definition), 0o600))
	}
	return images
}

// services returns the names of the charts with an image.
func services(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(root + "/charts/akri/charts/*/values.schema.json")
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names
}

func reference(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// keyPair creates NAME.key and NAME.pub and returns NAME.
func (r release) keyPair(t *testing.T) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "test")
	r.with("COSIGN_PASSWORD=").run(t, cosign, "generate-key-pair", "--output-key-prefix", prefix)
	return prefix
}

func helm(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("AKRI_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = filepath.Join(user, "akri")
	}
	return filepath.Join(cache, "bin", "helm")
}

func (r release) run(t *testing.T, command string, args ...string) string {
	t.Helper()
	text, err := r.output(t, command, args...)
	require.NoError(t, err)
	return text
}

// output runs a command that has no configuration of the user and returns what it prints.
func (r release) output(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	bin, err := filepath.Abs(root + "/bin")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), command, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TUF_ROOT="+home,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Env = append(cmd.Env, r.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", command, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// requireOrder checks what SECURITY.md states about jobs: nothing is published before all tests
// have passed and the search for vulnerabilities found nothing, nor without the environment
// `release`.
func requireOrder(t *testing.T, release []byte) {
	t.Helper()
	var content struct {
		Jobs map[string]struct {
			Needs             any
			Uses, Environment string
		}
	}
	require.NoError(t, yaml.Unmarshal(release, &content))
	require.Equal(t, "./.github/workflows/ci.yml", content.Jobs["test"].Uses)
	require.Equal(t, "./.github/workflows/vulnerabilities.yml", content.Jobs["vulnerabilities"].Uses)
	require.Equal(t, []any{"test", "vulnerabilities"}, content.Jobs["images-and-charts"].Needs)
	require.Equal(t, "images-and-charts", content.Jobs["kubectl-akri"].Needs)
	for _, job := range []string{"images-and-charts", "kubectl-akri"} {
		require.Equal(t, "release", content.Jobs[job].Environment, job)
	}

	text, err := os.ReadFile(root + "/.github/workflows/vulnerabilities.yml")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^  schedule: \[\{cron: "\d+ \d+ \* \* \*"\}\]`, string(text), "each day")
}
