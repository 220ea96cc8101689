#!/bin/sh
# build.sh OUTPUT: builds the kernel, the initial RAM disk and the root file system of the guest into
# the directory OUTPUT. It runs in mount and PID namespaces of its own: the root file system is
# built in memory, and a killed build leaves neither mounts nor processes. A line "step: ..." is
# progress.
set -eu
output=$1
recipe=$(dirname "$0")
# The exact name, because a pattern downloads every kernel that matches it. The cloud kernel has no
# drivers for USB, sound and media. The security archive has the newest kernel of the release, and
# an update of the ABI changes this name.
kernel=6.1.0-56-amd64
mirror=http://deb.debian.org
packages=systemd-sysv,udev,dbus,kmod,iproute2,usbutils,pciutils,util-linux,qemu-guest-agent
# A guest that is a node of a cluster also has these. Its other programs are on a disk.
packages=$packages,e2fsprogs,iptables,runc,containernetworking-plugins

# mmdebstrap reads /proc/self, which must be that of this PID namespace.
mount -t proc proc /proc
work=$output/work
mkdir "$work"
mount -t tmpfs -o size=3g tmpfs "$work"
root=$work/root
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

echo "step: download and install Debian packages"
# Paths of tar in the kernel package begin with ./lib, which is a symbolic link in the root.
mmdebstrap --mode=root --variant=minbase --include="$packages" \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="echo 'step: download and unpack the kernel' && chroot \"\$1\" sh -ec '
    cd /tmp
    apt-get download --quiet linux-image-$kernel || { echo update the name of the kernel in build.sh; exit 1; }
    dpkg-deb --fsys-tarfile linux-image-*.deb | tar --extract --keep-directory-symlink --directory / --exclude=./usr/share \
      --exclude=*/drivers/gpu --exclude=*/drivers/net/wireless --exclude=*/drivers/net/ethernet --exclude=*/drivers/infiniband
    rm linux-image-*.deb
    depmod $kernel'" \
  bookworm "$root" "deb $mirror/debian bookworm main" "deb $mirror/debian-security bookworm-security main"

echo "step: write the initial RAM disk"
mkdir -p "$work/initrd/modules" "$work/initrd/bin"
cp "$recipe/init" "$work/initrd/init"
chmod 755 "$work/initrd/init"
# The static busybox of this machine; that of the guest would need the C library.
cp "$(command -v busybox)" "$work/initrd/bin/busybox"
# modprobe lists the dependencies of a module before the module. erofs loads crc32c by its alias,
# which modprobe does not list.
for module in virtio_pci virtio_blk virtio_net crc32c_generic erofs overlay; do
  chroot "$root" modprobe --set-version "$kernel" --show-depends "$module"
done | while read -r verb path _; do
  [ "$verb" = insmod ] || continue
  name=$(basename "$path")
  [ ! -e "$work/initrd/modules/$name" ] || continue
  cp "$root$path" "$work/initrd/modules/$name"
  echo "$name" >>"$work/initrd/modules/order"
done
(cd "$work/initrd" && find . | cpio --quiet --create --format=newc) >"$output/initrd"
cp "$root/boot/vmlinuz-$kernel" "$output/vmlinuz"

echo "step: write the root file system"
# Timers, consoles and services that a guest of minutes does not need.
for unit in e2scrub_reap.service systemd-update-utmp.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-timesyncd.service getty@tty1.service serial-getty@ttyS0.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf /lib/systemd/system/qemu-guest-agent.service "$root/etc/systemd/system/multi-user.target.wants/"
# A disk with the serial number "node" makes the guest a node of a cluster.
cat >"$root/etc/udev/rules.d/90-node.rules" <<'END'
SUBSYSTEM=="block", ENV{ID_SERIAL}=="node", TAG+="systemd", ENV{SYSTEMD_WANTS}+="node.service"
END
cat >"$root/etc/systemd/system/node.service" <<'END'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mkdir -p /node && mount -o ro /dev/disk/by-id/virtio-node /node && exec /node/join.sh'
END
# Guests with busybox as init have neither systemd nor udevd. systemd does not read inittab.
mkdir "$root/lib/busybox"
cp "$(command -v busybox)" "$root/lib/busybox/init"
install --mode=755 "$recipe/busybox/boot" "$recipe/busybox/join" "$root/lib/busybox/"
install --mode=644 "$recipe/busybox/inittab" "$root/etc/inittab"
: >"$root/etc/machine-id"
echo guest >"$root/etc/hostname"
rm -rf "$root/boot" "$root/var/lib/apt/lists" "$root/var/cache/apt"
mkdir -p "$root/var/lib/apt/lists" "$root/var/cache/apt"
chroot "$root" dpkg-query --show >"$output/packages"
mkfs.erofs -T0 --quiet "$output/root.erofs" "$root"
umount "$work"
rmdir "$work"
