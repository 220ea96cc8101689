#!/usr/bin/env bash
# Installs the cross compiler and libraries for images with C code (Debian and Ubuntu, root).
set -euo pipefail

dpkg --add-architecture arm64
apt-get update -q
apt-get install -yq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross libudev-dev:arm64
