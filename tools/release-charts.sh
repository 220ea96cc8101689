#!/usr/bin/env bash
# release-charts.sh HELM TAG REGISTRY: packages the charts as version TAG with the images of TAG and
# pushes them.
set -euo pipefail

helm=$1 tag=$2 registry=$3
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$(dirname "$0")/../charts/"{akri,akri-crds} "$copy"
# Each sub-chart has its own version and takes its image tag from its appVersion.
find "$copy" -name Chart.yaml -exec sed -i -e "s/version: 0\.1\.0/version: ${tag#v}/" -e "s/^appVersion: .*/appVersion: $tag/" {} +
for chart in akri akri-crds; do
  "$helm" package "$copy/$chart" --destination "$copy"
  "$helm" push "$copy/$chart-${tag#v}.tgz" "oci://$registry/charts"
done
