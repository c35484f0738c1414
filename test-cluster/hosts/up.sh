#!/bin/bash
# up.sh DIR - four plain hosts on one machine: a, b, c and d, each in namespaces of its own (mount, uts, pid, net) on a bridge, with a
# real sshd, a root file system and a home of its own, and real Open MPI. No scheduler and no shared folder: what a rack of machines is.
# Idempotent: a second run starts only what is missing. Stop it with down.sh DIR. Needs root and the Debian packages that `packages` names (../install.sh packages).
#   CLUSTER_ID=0      several clusters at once: shifts bridge and subnet
#   CLUSTER_SMALL=1m  size of a file system of its own at /small on host d, to fill up
# The user is `researcher`; `ssh -F DIR/ssh/config a` logs in. No host has a key of another: weftrun makes them for a job, when asked.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"; D=$(cd "$1" && pwd -P)
CLUSTER_ID=${CLUSTER_ID:-0} CLUSTER_SMALL=${CLUSTER_SMALL:-1m}
die() { echo "up.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root"
p=$D; while [ "$p" != / ]; do   # researcher must be able to walk to DIR
  [ $(( 0$(stat -c %a "$p") & 1 )) = 1 ] || [ "$p" = "$D" ] || die "$p is not traversable by other users: choose another DIR"
  p=$(dirname "$p"); done
chmod 755 "$D"
for c in /usr/sbin/sshd mpirun unshare nsenter setpriv; do command -v $c > /dev/null || die "missing $c: run test-cluster/install.sh test-cluster/hosts/packages"; done
SUBNET=10.78.$CLUSTER_ID BR=wthosts$CLUSTER_ID
NODES=(a b c d)
mkdir -p "$D"/{etc,ssh,pids,log,lib,bin,nodes}
printf "D='%s' BR=%s SUBNET=%s CLUSTER_ID=%s CLUSTER_SMALL=%s\n" "$D" "$BR" "$SUBNET" "$CLUSTER_ID" "$CLUSTER_SMALL" > "$D/lib/env"
cp "$HERE/node.sh" "$HERE/engine.sh" "$D/lib/"; cp "$HERE/clusterctl" "$D/bin/clusterctl"; chmod 755 "$D/lib/node.sh" "$D/bin/clusterctl"

if [ ! -e "$D/ssh/config" ]; then
  { echo "127.0.0.1 localhost"; i=11; for n in "${NODES[@]}"; do echo "$SUBNET.$i $n"; i=$((i + 1)); done; } > "$D/etc/hosts"
  for f in passwd group shadow; do cp "/etc/$f" "$D/etc/$f"; done
  grep -q '^researcher:' "$D/etc/passwd" || {
    echo "researcher:x:2001:2001:ML researcher:/home/researcher:/bin/bash" >> "$D/etc/passwd"
    echo "researcher:x:2001:" >> "$D/etc/group"; echo "researcher:*:19000::::::" >> "$D/etc/shadow"; }
  grep -q '^sshd:' "$D/etc/passwd" || { echo "sshd:x:2009:65534::/run/sshd:/usr/sbin/nologin" >> "$D/etc/passwd"; }
  chmod 600 "$D/etc/shadow"
  ssh-keygen -q -t ed25519 -N '' -C cluster -f "$D/ssh/id"
  : > "$D/ssh/known_hosts"
  : > "$D/ssh/config.new"
  i=11; for n in "${NODES[@]}"; do
    mkdir -p "$D/nodes/$n/ssh" "$D/nodes/$n/home/researcher/.ssh"
    ssh-keygen -q -t ed25519 -N '' -C "$n" -f "$D/nodes/$n/ssh/ssh_host_ed25519_key"
    echo "$SUBNET.$i $(cut -d' ' -f1,2 "$D/nodes/$n/ssh/ssh_host_ed25519_key.pub")" >> "$D/ssh/known_hosts"
    cp "$D/ssh/id.pub" "$D/nodes/$n/home/researcher/.ssh/authorized_keys"
    chmod 700 "$D/nodes/$n/home/researcher" "$D/nodes/$n/home/researcher/.ssh"; chmod 600 "$D/nodes/$n/home/researcher/.ssh/authorized_keys"
    chown -R 2001:2001 "$D/nodes/$n/home/researcher"
    printf 'Host %s\n  HostName %s\n' "$n" "$SUBNET.$i" >> "$D/ssh/config.new"
    i=$((i + 1)); done
  printf 'Host *\n  User researcher\n  IdentityFile %s\n  IdentitiesOnly yes\n  UserKnownHostsFile %s\n  StrictHostKeyChecking yes\n' \
    "$D/ssh/id" "$D/ssh/known_hosts" >> "$D/ssh/config.new"
  mv "$D/ssh/config.new" "$D/ssh/config"
fi
if ! ip link show "$BR" > /dev/null 2>&1; then ip link add "$BR" type bridge; fi
ip addr replace "$SUBNET.1/24" dev "$BR"; ip link set "$BR" up
echo "$BR" > "$D/pids/.bridge"
for n in "${NODES[@]}"; do "$D/bin/clusterctl" start "$n" & done; wait
for n in "${NODES[@]}"; do
  for ((k = 0; k < 200; k++)); do ssh -F "$D/ssh/config" -o BatchMode=yes -o ConnectTimeout=2 "$n" true 2> "$D/log/ssh.$n" && break; sleep 0.1; done
  [ $k -lt 200 ] || die "$n does not answer: $(cat "$D/log/ssh.$n" "$D/log/$n.out" | tail -5)"; done
echo "ready: ${NODES[*]}   ssh -F $D/ssh/config a"
