#!/usr/bin/env bash
# one-version.sh MODULE...: fails if two modules require different versions of a dependency.
set -euo pipefail

awk '$1 !~ /^akri\.sh\// && $2 !~ /^akri\.sh\// && $1 != "module" && $NF != "=>" && /^(require )?\t?[a-z0-9.-]+\.[a-z]+\/[^ ]+ v/ {
  sub(/^require /, ""); seen[$1] = seen[$1] " " $2 ":" FILENAME; if (!($1 in version)) version[$1] = $2; else if (version[$1] != $2) bad[$1]
} END { for (m in bad) { failed = 1; print m " is required in several versions:" seen[m] } exit failed }' $(printf '%s/go.mod ' "$@") >&2
