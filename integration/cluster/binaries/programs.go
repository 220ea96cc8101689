package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Program is one binary to build.
type Program struct {
	// Name of the file in the cache directory.
	Name string
	// Module is the directory of the Go module that pins it, relative to the repository.
	Module string
	// Package is the main package.
	Package string
	// Tags are Go build tags, separated by commas.
	Tags string
	// LinkFlags are added to "-s -w".
	LinkFlags string
	// Architecture is that of a program for another machine, as Go names it.
	Architecture string
}

// kubernetesVersion is what clusters run by default.
const kubernetesVersion = "v1.37.2"

// earlierVersions of Kubernetes can be run instead.
var earlierVersions = []string{"v1.36.3", "v1.35.4", "v1.34.4", "v1.30.14"}

// ofKubernetes are the programs of Kubernetes that a cluster runs. Its clients use the kubectl of
// the default version.
var ofKubernetes = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}

// These snapshotters need C libraries and are not used.
const containerdTags = "no_btrfs,no_zfs,no_devmapper"

// Programs returns the binaries of a cluster, small ones first, so that a broken toolchain fails
// early.
func Programs() []Program {
	list := []Program{
		{Name: "pause", Module: "tools/cluster", Package: "./pause"},
		{Name: "relay", Module: "tools/cluster", Package: "./relay"},
	}
	for _, name := range append(slices.Clone(ofKubernetes), "kubectl") {
		list = append(list, kubernetes(name, "tools/kubernetes", kubernetesVersion))
	}
	list = append(list, Program{
		Name: "etcd", Module: "tools/kubernetes", Package: "go.etcd.io/etcd/server/v3", LinkFlags: kubernetesFlags(kubernetesVersion),
	})
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		list = append(list, Program{
			Name: name, Module: "tools/containerd", Package: "github.com/containerd/containerd/v2/cmd/" + name, Tags: containerdTags,
		})
	}
	return append(list,
		Program{Name: "coredns", Module: "tools/coredns", Package: "."},
		Program{Name: "etcdutl", Module: "tools/etcdutl", Package: "go.etcd.io/etcd/etcdutl/v3"},
		Program{Name: "helm", Module: "tools/helm", Package: "helm.sh/helm/v4/cmd/helm"},
		Program{Name: "helm-3", Module: "tools/helm-3", Package: "helm.sh/helm/v3/cmd/helm"},
		Program{Name: "otelcol", Module: "tools/otelcol", Package: "."},
	)
}

// earlierPrograms returns the programs of the earlier versions of Kubernetes.
func earlierPrograms() []Program {
	var list []Program
	for _, version := range earlierVersions {
		minor := minorOf(version)
		for _, name := range ofKubernetes {
			p := kubernetes(name, "tools/kubernetes-"+minor, version)
			p.Name = Earlier(name, minor)
			list = append(list, p)
		}
	}
	return list
}

// Earlier returns the name of a program of an earlier version of Kubernetes, such as 1.34, or the
// name itself if the program is not one of Kubernetes or if minor is empty.
func Earlier(name, minor string) string {
	if minor == "" || !slices.Contains(ofKubernetes, name) {
		return name
	}
	return name + "-" + minor
}

// otherArchitectures are those of machines that can join a cluster.
var otherArchitectures = []string{"arm64"}

// foreignPrograms returns the programs for the other architectures.
func foreignPrograms() []Program {
	var list []Program
	for _, architecture := range otherArchitectures {
		for _, p := range Programs() {
			p.Name, p.Architecture = For(p.Name, architecture), architecture
			list = append(list, p)
		}
	}
	return list
}

// For returns the name of a program for an architecture, as Go names it. It is the name itself for
// the architecture of this machine, or if architecture is empty.
func For(name, architecture string) string {
	if architecture == "" || architecture == runtime.GOARCH {
		return name
	}
	return name + "-" + architecture
}

func kubernetes(name, module, version string) Program {
	return Program{Name: name, Module: module, Package: "k8s.io/kubernetes/cmd/" + name, LinkFlags: kubernetesFlags(version)}
}

// kubernetesFlags let the linker set the version, which clients and the node status show.
func kubernetesFlags(version string) string {
	major, minor, _ := strings.Cut(minorOf(version), ".")
	const variable = "-X k8s.io/component-base/version."
	return variable + "gitVersion=" + version + " " + variable + "gitMajor=" + major + " " + variable + "gitMinor=" + minor
}

// minorOf returns "1.34" for "v1.34.4".
func minorOf(version string) string {
	version = strings.TrimPrefix(version, "v")
	return version[:strings.LastIndexByte(version, '.')]
}

// OfCluster returns the names of the programs that a cluster runs, and of kubectl. Tests need more.
// minor is an earlier version of Kubernetes, or empty.
func OfCluster(minor string) []string {
	var names []string
	for _, p := range Programs() {
		if !slices.Contains([]string{"etcdutl", "helm", "helm-3", "otelcol"}, p.Name) {
			names = append(names, Earlier(p.Name, minor))
		}
	}
	return names
}

// programs returns the named binaries, or all of the default version.
func programs(names []string) ([]Program, error) {
	all := Programs()
	if len(names) == 0 {
		return all, nil
	}
	all = slices.Concat(all, earlierPrograms(), foreignPrograms())
	var found []Program
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Program) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown binary %q", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// flags are those of go build.
func (p Program) flags(out string) []string {
	linker := strings.TrimSpace("-s -w " + p.LinkFlags)
	return []string{"-mod=readonly", "-buildvcs=false", "-trimpath", "-tags", p.Tags, "-ldflags", linker, "-o", out}
}

// version matches the last element of the path of a package with a major version.
var version = regexp.MustCompile(`^v[0-9]+$`)

// output is the name that the Go command gives the program in a directory.
func (p Program) output() string {
	pkg := path.Join(p.Module, p.Package)
	if version.MatchString(path.Base(pkg)) {
		pkg = path.Dir(pkg)
	}
	return path.Base(pkg)
}

// stamp is a digest of all inputs of the build. If it is unchanged, the binary is up to date.
func (p Program) stamp(root, goVersion string) (string, error) {
	digest := sha256.New()
	fmt.Fprintln(digest, goVersion, slices.Concat([]string{"build"}, p.flags(p.Name), []string{p.Package}))
	module := filepath.Join(root, p.Module)
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isBuildInput(path) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(digest, "%s %d\n%s", strings.TrimPrefix(path, module), len(content), content)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read sources of %s: %w", p.Name, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func isBuildInput(path string) bool {
	name := filepath.Base(path)
	return name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}
