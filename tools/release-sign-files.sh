#!/usr/bin/env bash
# release-sign-files.sh DIR: signs all files in DIR, and attests where they come from (SLSA
# provenance), as release-sign.sh does for images. Next to each FILE it writes FILE.sigstore.json and
# FILE.provenance.sigstore.json.
set -euo pipefail

dir=$1
rm -f "$dir"/*.sigstore.json
provenance=$(mktemp)
trap 'rm -f "$provenance"' EXIT
"$(dirname "$0")/release-provenance.sh" > "$provenance"

files=("$dir"/*)
for file in "${files[@]}"; do
  cosign sign-blob --yes --bundle "$file.sigstore.json" "$file"
  cosign attest-blob --yes --type slsaprovenance1 --predicate "$provenance" --bundle "$file.provenance.sigstore.json" "$file"
done
