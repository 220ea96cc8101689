#!/usr/bin/env bash
# release-sign.sh DIR: signs the images and charts whose references are in DIR/*.digest, and attests
# where they come from (SLSA provenance) and what the images are made of (SBOM). In a workflow of
# GitHub, the workflow's identity signs. Elsewhere the environment of cosign selects a key.
set -euo pipefail

dir=$1
"$(dirname "$0")/release-provenance.sh" > "$dir/provenance.json"
mapfile -t references < <(cat "$dir"/*.digest)
cosign sign --yes "${references[@]}"
cosign attest --yes --type slsaprovenance1 --predicate "$dir/provenance.json" "${references[@]}"
for sbom in "$dir"/*.spdx.json; do
  cosign attest --yes --type spdxjson --predicate "$sbom" "$(<"${sbom%.spdx.json}.digest")"
done
