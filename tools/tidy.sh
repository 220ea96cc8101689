#!/usr/bin/env bash
# tidy.sh: tidies every module and brings all of them to one version of each dependency.
set -euo pipefail
cd "$(dirname "$0")/.."

modules=$(sed -n 's|^\t\./||p' go.work)
each() { for module in $modules; do (cd "$module" && GOWORK=off go mod tidy); done; }
each
# Raises what a module requires to what the workspace uses; what only tests of dependencies ask for goes again with tidy.
go work sync
each
for module in tools/*/go.mod; do (cd "$(dirname "$module")" && GOWORK=off go mod tidy); done
