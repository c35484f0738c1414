#!/bin/bash
# install.sh: the Debian packages that the test cluster runs on, and Go where there is none. Does nothing where all is there.
set -eu
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
need=()
has() { dpkg -s "$1" 2>/dev/null | grep -q '^Status: install ok installed'; }
for package in containerd runc containernetworking-plugins busybox-static openssh-server openmpi-bin iproute2 openssl bc curl python3 gcc; do
  has $package || need+=($package)
done
command -v go >/dev/null || need+=(golang-go)
[ ${#need[@]} = 0 ] && exit 0
root apt-get update -qq
# Services must not start: each node of the cluster has a containerd of its own.
printf '#!/bin/sh\nexit 101\n' | root tee /usr/sbin/policy-rc.d >/dev/null; root chmod +x /usr/sbin/policy-rc.d
root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
root rm -f /usr/sbin/policy-rc.d
