#!/bin/bash
# node.sh NAME: pid 1 of a host, in new mount, uts, pid and net namespaces. Its root is a copy-on-write layer over this machine's, so what
# a job writes stays on that host.
. "$(dirname "$0")/env"; N=$1
set -e
hostname "$N"
# The layer is in memory: the machine's own file system may be an overlay, on which no second one can be.
O=$D/nodes/$N/root; mkdir -p "$O"; mount -t tmpfs -o mode=755 tmpfs "$O"; mkdir "$O/up" "$O/work" "$O/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$O/up,workdir=$O/work" "$O/root"; R=$O/root
mount -t proc proc "$R/proc"; mount --rbind /sys "$R/sys"
# Devices of its own, so that a host can be given some (`clusterctl in a mknod /dev/infiniband/uverbs0 …`).
mount -t tmpfs -o mode=755 tmpfs "$R/dev"; mkdir -p "$R/dev/pts" "$R/dev/shm" "$R/dev/mqueue"
for f in null zero full random urandom tty fuse; do [ ! -e /dev/$f ] || cp -a "/dev/$f" "$R/dev/$f"; done
for f in fd stdin stdout stderr; do cp -a "/dev/$f" "$R/dev/$f"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$R/dev/pts"; ln -s pts/ptmx "$R/dev/ptmx"
mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"; mount -t mqueue mqueue "$R/dev/mqueue"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"; mount -t tmpfs -o mode=755 tmpfs "$R/run"
mkdir -p "$R/run/sshd" "$R/home" "$R/small" "$R/etc/ssh" "$R$D"; mount --bind "$D" "$R$D"
mount -t tmpfs -o "size=$CLUSTER_SMALL,mode=1777" tmpfs "$R/small"
mount --bind "$D/nodes/$N/home" "$R/home"
for f in hosts passwd group shadow; do cp --preserve=mode "$D/etc/$f" "$R/etc/$f"; done
rm -f "$R"/etc/ssh/ssh_host_*; cp "$D/nodes/$N/ssh/"ssh_host_* "$R/etc/ssh/"; chmod 600 "$R/etc/ssh/ssh_host_ed25519_key"
cat > "$R/etc/ssh/sshd_cluster" <<S
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
MaxSessions 100
PidFile /run/sshd.pid
S
# Each host has another shell: dash, bash, busybox.
case $N in b) ln -sf bash "$R/bin/sh" ;; c) ln -sf busybox "$R/bin/sh" ;; esac
cd "$R"; mkdir -p .old-root; pivot_root . .old-root; cd /; umount -l /.old-root; rmdir /.old-root 2>/dev/null || true
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin
ip link set lo up
for ((k = 0; k < 500; k++)); do ip -4 addr show dev eth0 2>/dev/null | grep -q inet && break; sleep 0.02; done
set +e
trap 'exit 0' TERM
/usr/sbin/sshd -f /etc/ssh/sshd_cluster -E "$D/log/sshd.$N"
while :; do wait -n 2>/dev/null; sleep 0.5 & wait $!; done
