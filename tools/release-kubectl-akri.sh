#!/usr/bin/env bash
# release-kubectl-akri.sh TAG DIR: builds the archives of kubectl akri for all platforms of its krew
# manifest, and the manifest with their sums. Equal sources give equal archives. DIR.spdx gets the
# SBOM of each archive. GITHUB_REPOSITORY is the repository whose release has the archives.
set -euo pipefail

tag=$1 dir=$2
root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/tools/kubectl-akri
content=$(mktemp -d)
trap 'rm -rf "$content"' EXIT
mkdir -p "$dir" "$dir.spdx"
sed "s|akri-mesh/akri|${GITHUB_REPOSITORY:-akri-mesh/akri}|; s/VERSION/$tag/g; /^#/d" "$source/krew.yaml" > "$dir/akri.yaml"
for platform in $(sed -n 's/.*SHA256-//p' "$source/krew.yaml"); do
  os=${platform%-*} arch=${platform#*-} archive=$dir/kubectl-akri-$platform.tar.gz
  rm -f "$content"/*
  cp "$root/LICENSE" "$source/kubectl_complete-akri" "$content"
  (cd "$source" && CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOARM=7 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X akri.sh/libs/version.Version=$tag" -o "$content/" .)
  chmod -R u=rwX,go=rX "$content"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$content" -c . | gzip -n > "$archive"
  akri-image sbom --version "$tag" --platform "$os/$arch" "$content"/kubectl-akri* "$archive" > "$dir.spdx/${archive##*/}.spdx.json"
  sum=$(sha256sum "$archive")
  sed -i "s/SHA256-$platform$/${sum%% *}/" "$dir/akri.yaml"
done
(cd "$dir" && sed -n 's|.*/\(kubectl-akri-.*\)|\1|p; s|.*sha256: ||p' akri.yaml | paste - - | awk '{print $2 "  " $1}' | sha256sum --check --strict)
