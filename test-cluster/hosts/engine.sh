#!/bin/sh
# engine.sh docker|podman - prepares a container engine on the host where it runs, and the image localhost/box:1 of busybox. Podman: for the
# user who runs it, without root. Docker: as root; the daemon is the host's own, for researcher.
set -e
engine=$1
case $engine in
podman)
  mkdir -p ~/.config/containers
  # No overlay in an overlay, and no systemd.
  printf '[storage]\ndriver = "vfs"\n' > ~/.config/containers/storage.conf
  printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n' > ~/.config/containers/containers.conf ;;
docker)
  docker info > /dev/null 2>&1 || {
    mkdir -p /run/docker-cluster /var/lib/docker-cluster
    setsid dockerd --iptables=false --ip6tables=false --bridge=none --storage-driver=vfs --data-root /var/lib/docker-cluster \
      --exec-root /run/docker-cluster -p /run/docker-cluster.pid -G researcher < /dev/null > /run/docker-cluster.log 2>&1 &
    tries=0; until docker info > /dev/null 2>&1; do
      tries=$((tries + 1)); [ "$tries" -lt 300 ] || { tail -n 3 /run/docker-cluster.log >&2; exit 1; }
      sleep 0.1; done; } ;;
esac
! "$engine" image inspect localhost/box:1 > /dev/null 2>&1 || exit 0
root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/tmp" "$root/etc"; cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh sleep cat id ls env echo grep touch; do ln -s busybox "$root/bin/$applet"; done
for library in $(ldd "$root/bin/busybox" | grep -o '/[^ ]*'); do mkdir -p "$root${library%/*}"; cp "$library" "$root$library"; done
tar --owner=0 --group=0 -C "$root" -c . | "$engine" import - localhost/box:1
