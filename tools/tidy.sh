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
