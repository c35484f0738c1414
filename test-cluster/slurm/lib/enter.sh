#!/bin/bash
# enter.sh ROLE NAME: runs as pid 1 of new mount, uts and pid (and net) namespaces
. "$(dirname "$0")/env"; ROLE=$1 NAME=$2; R=$CLUSTER_ROOT
set -e
hostname "$NAME"
if [ "$ROLE" = node ]; then
  # a copy-on-write root per node: what a job writes outside /home, /fsx and DIR stays on that node and dies with it
  O=$D/roots/$NAME; mkdir -p "$O"; mount -t tmpfs -o mode=755 tmpfs "$O"; mkdir "$O/up" "$O/work" "$O/root"
  if mount -t overlay overlay -o "lowerdir=${R:-/},upperdir=$O/up,workdir=$O/work" "$O/root"; then R=$O/root
  else echo "no overlayfs: $NAME shares the root file system"; fi
fi
if [ -n "$R" ]; then
  mountpoint -q "$R" || mount --bind "$R" "$R"
  mount -t proc proc "$R/proc"; mount --rbind /dev "$R/dev"; mount --rbind /sys "$R/sys"
  if [ "$ROLE" = node ]; then mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
    { mkdir -p "$R/dev/mqueue" && mount -t mqueue mqueue "$R/dev/mqueue"; } 2>/dev/null || true; fi   # enroot wants it
  mkdir -p "$R$D"; mount --bind "$D" "$R$D"
fi
if [ "$ROLE" = head ]; then   # its own /etc only: the rest of the machine's files stay visible to the head node
  O=$D/roots/$NAME; mkdir -p "$O"; mount -t tmpfs -o mode=755 tmpfs "$O"; mkdir "$O/up" "$O/work"
  mount -t overlay overlay -o "lowerdir=$R/etc,upperdir=$O/up,workdir=$O/work" "$R/etc" && OVL=1 || OVL=0
else [ "$R" = "${O:-}/root" ] && OVL=1 || OVL=0; fi
mkdir -p "$D/$ROLE-run/$NAME" "$R/etc/slurm" "$R/fsx" "$R/home"; chmod 755 "$D/$ROLE-run" "$D/$ROLE-run/$NAME"
mount --bind "$D/$ROLE-run/$NAME" "$R/run"
for f in hosts passwd group shadow; do   # a copy in the overlay: a bind mount would fall off when apt replaces /etc/group
  if [ $OVL = 1 ]; then cp --preserve=mode "$D/etc/$f" "$R/etc/$f"
  else [ -e "$R/etc/$f" ] || : > "$R/etc/$f"; mount --bind "$D/etc/$f" "$R/etc/$f"; fi; done
mount --bind "$D/etc/slurm" "$R/etc/slurm"
mount --bind "$D/home" "$R/home"; mount --rbind "$D/shared/fsx" "$R/fsx"
if [ "$ROLE" = node ]; then mkdir -p "$R/run/munge"; mount --bind "$D/head-run/head-node/munge" "$R/run/munge"; fi
if [ -n "$R" ]; then cd "$R"; mkdir -p .old-root; pivot_root . .old-root; cd /; umount -l /.old-root; rmdir /.old-root 2>/dev/null || true; fi
cd /; exec /bin/bash "$D/lib/$ROLE-init.sh" "$NAME"
