#!/usr/bin/env bash
# vulnerabilities.sh MODULE...: searches the modules, and the shell in some images, for known
# vulnerabilities that their code can reach. VULNDB is the address of the database (default:
# https://vuln.go.dev).
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
scan() { echo "$1"; (cd "$1" && GOWORK=off govulncheck ${VULNDB:+-db "$VULNDB"} "$2") || failed=1; }
for module in "$@"; do
  scan "$module" ./...
done
scan deploy/images/shell tool
exit $failed
