#!/usr/bin/env bash
# release-sign-files.sh DIR: signs all files in DIR, and attests where they come from (SLSA
# provenance) and what those with DIR.spdx/FILE.spdx.json are made of (SBOM), as release-sign.sh does
# for images. Next to each FILE it writes FILE.sigstore.json, FILE.provenance.sigstore.json and
# FILE.sbom.sigstore.json.
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
  sbom=$dir.spdx/${file##*/}.spdx.json
  [ ! -e "$sbom" ] || cosign attest-blob --yes --type spdxjson --predicate "$sbom" --bundle "$file.sbom.sigstore.json" "$file"
done
