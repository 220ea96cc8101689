#!/usr/bin/env bash
# Installs the Debian packages that building and testing need, or says which to install. Quiet when nothing is missing.
set -euo pipefail

missing=()
for package in gcc libc6-dev libudev-dev umockdev; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
# The tests plug in block devices; where zram is a module it may not be loaded yet.
[ -e /sys/class/zram-control ] || modprobe zram 2>/dev/null || true
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${missing[*]}"
  log=$(mktemp)
  { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || { tail -20 "$log"; exit 1; }
  rm -f "$log"
else
  echo "building and testing the udev handler needs these packages: apt-get install ${missing[*]}" >&2
  exit 1
fi
