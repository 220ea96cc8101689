#!/usr/bin/env bash
# samples.sh REGISTRY TAG DIR: writes the samples, with their values of the chart, to DIR. Their
# images are those of the registry with the tag.
set -euo pipefail

registry=$1 tag=$2 dir=$3
[[ "$registry/sample-broker:$tag" =~ ^[a-zA-Z0-9._:/-]+$ ]] || { echo "$registry/sample-broker:$tag is not the name of an image"; exit 1; }
mkdir -p "$dir/values"
cd "$(dirname "$0")/../deploy/samples"
for file in *.yaml values/*.yaml; do
  sed -e "s|ghcr\.io/akri-mesh/\([a-z-]*\):v0\.1\.0|$registry/\1:$tag|" \
    -e "s|ghcr\.io/akri-mesh/\([a-z-]*\), tag: v0\.1\.0|$registry/\1, tag: $tag|" "$file" > "$dir/$file"
done
