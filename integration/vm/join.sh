#!/bin/sh
# Makes the guest a node of a cluster: with the files in /node, and with a disk that outlives the
# guest for the state of the node. node.env has the name, the addresses and the kubelet's
# directory.
set -eu
. /node/node.env
export PATH=/node/bin:$PATH

hostname "$name"
# The interface can appear after the disk with this script. eth0 is QEMU's user network.
until path=$(grep --files-with-matches "$mac" /sys/class/net/*/address); do sleep 0.1; done
link=$(basename "$(dirname "$path")")
ip link set eth0 down
ip address add "$address/24" dev "$link"
ip link set "$link" up
ip route add default via "$gateway"
echo 1 >/proc/sys/net/ipv4/ip_forward

until serial=$(grep --line-regexp --files-with-matches state /sys/block/*/serial); do sleep 0.1; done
disk=/dev/$(basename "$(dirname "$serial")")
blkid "$disk" || mkfs.ext4 -q "$disk"
mkdir -p /state
mount "$disk" /state
for dir in /var/lib/containerd "$kubelet" /var/lib/cni /var/lib/akri /var/log/pods /var/log/containers; do
  mkdir -p "/state$dir" "$dir"
  mount --bind "/state$dir" "$dir"
done
# As on distributions whose system is an image.
mount --bind --options ro /usr /usr

# service NAME ARGUMENT...: runs a program as a service that is restarted, by systemd if it is there.
service() {
  unit=$1
  shift
  if [ ! -d /run/systemd/system ]; then
    setsid sh -c 'while true; do "$@"; sleep 1; done' "$unit" "/node/bin/$unit" "$@" >"/var/log/$unit.log" 2>&1 &
    return
  fi
  systemd-run --quiet --unit="$unit" --property=Restart=always --property=Delegate=yes --property=KillMode=process \
    --setenv=PATH="$PATH" "/node/bin/$unit" "$@"
}
# systemd manages cgroups if it is there, else containerd and the kubelet do.
driver=$([ -d /run/systemd/system ] && echo true || echo false)
sed "s/SystemdCgroup = .*/SystemdCgroup = $driver/" /node/config/containerd.toml >/run/containerd.toml
service containerd --config=/run/containerd.toml
until ctr version >/dev/null 2>&1; do sleep 0.2; done
for image in /node/images/*.tar; do
  imported=/state/imported-$(basename "$image")
  [ -e "$imported" ] || ctr --namespace=k8s.io images import "$image"
  touch "$imported"
done
service kubelet --root-dir="$kubelet" --config=/node/config/kubelet.yaml --kubeconfig=/node/config/kubelet.kubeconfig \
  --hostname-override="$name" --node-ip="$address"
service kube-proxy --config=/node/config/kube-proxy.yaml
