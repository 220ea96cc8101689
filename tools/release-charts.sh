#!/usr/bin/env bash
# release-charts.sh HELM TAG REGISTRY DIR: packages the charts as version TAG and pushes them. The
# charts refer to the images by the digests in DIR, which `akri-image push --out DIR` writes. Writes
# the pushed charts by digest to DIR.
set -euo pipefail

helm=$1 tag=$2 registry=$3 dir=$4
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$(dirname "$0")/../charts/"{akri,akri-crds} "$copy"
# Each sub-chart has its own version and takes its image tag from its appVersion.
find "$copy" -name Chart.yaml -exec sed -i -e "s/version: 0\.1\.0/version: ${tag#v}/" -e "s/^appVersion: .*/appVersion: $tag/" {} +
sed -i "s|registry: ghcr.io/akri-mesh|registry: $registry|" "$copy/akri/values.yaml"
for service in "$copy"/akri/charts/*/; do
  grep -q '^type: library' "$service/Chart.yaml" && continue
  image=$(<"$dir/$(basename "$service").digest")
  printf 'annotations:\n  akri.sh/image-digest: %s\n' "${image#*@}" >> "$service/Chart.yaml"
done
for chart in akri akri-crds; do
  "$helm" package "$copy/$chart" --destination "$copy"
  "$helm" push "$copy/$chart-${tag#v}.tgz" "oci://$registry/charts" 2>&1 | tee "$copy/pushed"
  echo "$registry/charts/$chart@$(sed -n 's/^Digest: //p' "$copy/pushed")" > "$dir/chart-$chart.digest"
done
