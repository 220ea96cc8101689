#!/usr/bin/env bash
# Installs what releases need (Debian and Ubuntu, root): the cross compilers and libraries for images
# with C code, and jq. Prints nothing if none is missing.
set -euo pipefail

packages=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross libudev-dev:arm64 libopenh264-dev:arm64
  gcc-arm-linux-gnueabihf libc6-dev-armhf-cross libudev-dev:armhf libopenh264-dev:armhf jq)
if dpkg -s "${packages[@]}" >/dev/null 2>&1; then exit; fi

. /etc/os-release
ports=/etc/apt/sources.list.d/ubuntu-ports.sources
# Ubuntu has a server of its own for ARM. The usual ones do not know these architectures.
if [ "$ID" = ubuntu ] && [ ! -e "$ports" ]; then
  sed -i 's/^Types: deb$/&\nArchitectures: amd64/' /etc/apt/sources.list.d/ubuntu.sources
  cat > "$ports" <<EOF
Types: deb
Architectures: arm64 armhf
URIs: http://ports.ubuntu.com/ubuntu-ports
Suites: $VERSION_CODENAME $VERSION_CODENAME-updates $VERSION_CODENAME-security
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
EOF
fi
dpkg --add-architecture arm64
dpkg --add-architecture armhf
apt-get update -q
apt-get install -yq --no-install-recommends "${packages[@]}"
