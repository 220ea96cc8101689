#!/usr/bin/env bash
# prerequisites.sh [tests|arm|vm]: installs the Debian packages for building, with `tests` also those for
# testing, with `vm` those for tests in virtual machines, and with `arm` those for programs and
# virtual machines for ARM. Without root it lists them. Prints nothing if none is missing.
set -euo pipefail

missing=()
packages=(gcc libc6-dev libudev-dev libopenh264-dev)
# umockdev simulates devices, iproute2 their networks. curl is used by the tutorials, jq by releases.
# chromium opens the pages of the console and of the camera broker. GStreamer simulates cameras, and
# decodes H.265 (plugins-bad).
# mosquitto is the MQTT broker in the tests of the broker for OPC UA. protoc generates a client in Python.
[ "${1:-}" != tests ] || packages+=(umockdev iproute2 curl jq chromium mosquitto mosquitto-clients python3-gi gir1.2-gst-rtsp-server-1.0
  gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly
  protobuf-compiler-grpc python3-grpcio)
[ "${1:-}" != arm ] || packages+=(qemu-user-static qemu-system-arm)
# mmdebstrap and erofs-utils build the root file system of a guest, cpio its initial RAM disk.
[ "${1:-}" != vm ] || packages+=(qemu-system-x86 mmdebstrap erofs-utils cpio debian-archive-keyring)
for package in "${packages[@]}"; do
  # Packages of scripts have the architecture "all".
  dpkg -s "$package:$(dpkg --print-architecture)" >/dev/null 2>&1 || dpkg -s "$package:all" >/dev/null 2>&1 || missing+=("$package")
done
if [ "${1:-}" = tests ]; then
  # Independent devices, clients and handlers run on Node.js, from Debian or elsewhere.
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  # promtool tests the alerts of the chart, Prometheus evaluates them.
  command -v promtool >/dev/null && command -v prometheus >/dev/null || missing+=(prometheus)
fi
# The tests plug in zram devices. The module may not be loaded yet.
[ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${missing[*]}"
    log=$(mktemp)
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || { tail -20 "$log"; exit 1; }
    rm -f "$log"
  else
    echo "packages are missing: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

if [ "${1:-}" = tests ] && ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || a == 20 && b >= 19 ? 0 : 1)'; then
  echo "Node.js $(node --version) is too old: the OPC UA servers of the tests need 20.19 or newer" >&2
  exit 1
fi
