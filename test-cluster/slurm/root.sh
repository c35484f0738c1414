#!/bin/bash
# root.sh SUITE DIR - a chroot of another Debian release for up.sh (CLUSTER_ROOT=DIR), and with it another release of Slurm:
# trixie has 24.11, sid 26.05 (2026-11). Needs root and the network; 1 to 2 minutes and 800 MB. A DIR that is there stays.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 SUITE DIR" >&2; exit 2; }
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -x "$2/usr/sbin/slurmctld" ]; then chroot "$2" slurmctld -V; exit 0; fi
command -v mmdebstrap > /dev/null || { apt-get -qq update; apt-get -qq install -y --no-install-recommends mmdebstrap > /dev/null; }
mkdir -p "$(dirname "$2")"
# A machine whose clock is ahead of the archive would find sid's index out of date.
mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
  --include="$(tr ' ' ',' < "$HERE/packages"),procps,python3-minimal" "$1" "$2" http://deb.debian.org/debian
chroot "$2" slurmctld -V
