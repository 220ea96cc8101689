#!/bin/sh
# build.sh ARCHITECTURE OUTPUT: builds the kernel, the initial RAM disk and the root file system of the
# guest into the directory OUTPUT. It runs in mount, PID and user namespaces of its own: the root file
# system is built in memory, and a killed build leaves neither mounts nor processes. A line
# "step: ..." is progress.
set -eu
architecture=$1
output=$2
recipe=$(dirname "$0")
# The exact name, because a pattern downloads every kernel that matches it. The cloud kernel has no
# drivers for USB, sound and media. The security archive has the newest kernel of the release, and
# an update of the ABI changes this name.
kernel=6.1.0-56-$architecture
mirror=http://deb.debian.org
packages=systemd-sysv,udev,dbus,kmod,iproute2,usbutils,pciutils,util-linux,qemu-guest-agent
# A guest that is a node of a cluster also has these. Its other programs are on a disk.
packages=$packages,e2fsprogs,iptables,runc,containernetworking-plugins
# The initial RAM disk has this shell, which needs no libraries.
packages=$packages,busybox-static

# mmdebstrap reads /proc/self, which must be that of this PID namespace.
mount -t proc proc /proc
if [ "$architecture" != "$(dpkg --print-architecture)" ]; then
  # The kernel starts the scripts and programs of the packages with QEMU. Before Linux 6.7 there is one
  # table of emulators for all namespaces, which the package qemu-user-static fills with systemd.
  if mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; then
    cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
  fi
fi
work=$output/work
mkdir "$work"
mount -t tmpfs -o size=3g tmpfs "$work"
root=$work/root
export TMPDIR=$work/tmp
mkdir "$TMPDIR"

echo "step: download and install Debian packages"
# The links of /bin, /lib and /sbin are created first. usrmerge, which otherwise moves the files, takes
# minutes under emulation.
mmdebstrap --mode=root --architectures="$architecture" --skip=check/qemu --variant=minbase --include="$packages" \
  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
  --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook="sh $recipe/kernel.sh $kernel \"\$1\"" \
  bookworm "$root" "deb $mirror/debian bookworm main" "deb $mirror/debian-security bookworm-security main"

echo "step: write the initial RAM disk"
mkdir -p "$work/initrd/modules" "$work/initrd/bin"
cp "$recipe/init" "$work/initrd/init"
chmod 755 "$work/initrd/init"
cp "$root/bin/busybox" "$work/initrd/bin/busybox"
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
ln -s /bin/busybox "$root/lib/busybox/init"
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
