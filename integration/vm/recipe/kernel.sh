#!/bin/sh
# kernel.sh VERSION ROOT: downloads the kernel and unpacks it into the root file system. mmdebstrap
# runs it with a configuration of apt for that root. The drivers for hardware that guests do not have
# are left out.
set -eu
kernel=$1
root=$2
echo "step: download and unpack the kernel"
cd "$root/tmp"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
apt-get download --quiet "linux-image-$kernel" || { echo update the name of the kernel in build.sh; exit 1; }
# Paths in the package begin with ./lib, which is a symbolic link in the root.
dpkg-deb --fsys-tarfile linux-image-*.deb | tar --extract --keep-directory-symlink --directory "$root" --exclude=./usr/share \
  --exclude=*/drivers/gpu --exclude=*/drivers/net/wireless --exclude=*/drivers/net/ethernet --exclude=*/drivers/infiniband
rm linux-image-*.deb
chroot "$root" depmod "$kernel"
