#!/usr/bin/env bash
# Installs what images with C code need for the other platforms (Debian and Ubuntu, root).
set -euo pipefail

dpkg --add-architecture arm64
apt-get update -q
apt-get install -yq --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross libudev-dev:arm64
