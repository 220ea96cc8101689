#!/usr/bin/env bash
# tidy.sh: tidies all modules and moves them to one version of each dependency.
set -euo pipefail
cd "$(dirname "$0")/.."

modules=$(sed -n 's|^\t\./||p' go.work)
each() { for module in $modules; do (cd "$module" && GOWORK=off go mod tidy); done; }
each
# Raises each module's requirements to the versions of the workspace. The second tidy removes
# requirements that only the tests of dependencies have.
go work sync
each
for module in tools/*/go.mod; do (cd "$(dirname "$module")" && GOWORK=off go mod tidy); done

# Raises the programs of a cluster and the modules of the workspace to one version, so that a
# package that they share is compiled once. `go work sync` ignores modules that only have tools.
shared=$(tools/shared-modules.sh)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
{
  echo "go $(go env GOVERSION | sed 's/^go//')"
  printf 'use %s\n' $(for module in $modules $shared; do echo "$PWD/$module"; done)
} > "$directory/go.work"
GOWORK=$directory/go.work go list -m -f '{{.Path}} {{.Version}}' all | awk 'NF == 2' > "$directory/versions"
for module in $modules $shared; do
  older=$(awk 'NR == FNR { version[$1] = $2; next } $2 ~ /^v/ && $1 in version && version[$1] != $2 { print $1 "@" version[$1] }' \
    "$directory/versions" <(sed 's/^require //; s/^\t//' "$module/go.mod"))
  if [ -n "$older" ]; then (cd "$module" && GOWORK=off go get $older && GOWORK=off go mod tidy); fi
done
each # a module that was raised changes those that use it
