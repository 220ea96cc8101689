#!/usr/bin/env bash
# pinned.sh: fails if a workflow uses an action by tag or branch. Its owner can move these. Only a
# commit is always the same code. Actions of this repository need no pin.
set -euo pipefail
cd "$(dirname "$0")/.."

if grep -rnE '^[^#]*\buses:' .github | grep -vE 'uses: (\./[^ ]+|[^@ ]+@[0-9a-f]{40} # v[0-9.]+)$'; then
  echo "name the actions above by commit, with the version as a comment" >&2
  exit 1
fi
