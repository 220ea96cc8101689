#!/usr/bin/env bash
# unchanged.sh FIX COMMAND...: fails, and prints FIX, if the command changes a file of the repository.
set -euo pipefail

fix=$1; shift
files() { git ls-files -co --exclude-standard | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }
state() { files | sort -u | xargs -d '\n' sha256sum; }
before=$(state)
"$@" >/dev/null
after=$(state)
if ! difference=$(diff <(echo "$before") <(echo "$after")); then
  echo "run $fix, these files are out of date:" >&2
  awk '/^[<>]/ {print "  " $3}' <<<"$difference" | sort -u >&2
  exit 1
fi
