#!/bin/bash
# up.sh DIR - bring up a real multi-node Slurm cluster on one machine, without systemd or containers.
# Partitions and instance types are those of the AWS ParallelCluster reference site.
#
# One head node (munged, mariadbd, slurmdbd, slurmctld, slurmrestd, sshd) and several compute nodes
# (one slurmd each), every one in namespaces of its own (mount+uts+pid; compute nodes also net) on a
# bridge that this script makes.  Everything that is written lies under DIR; /etc, /run and /home are
# bind-mounted inside the namespaces only (an empty /fsx is made while a cluster is up, as its mount point).
# Shared by all nodes: /home and /fsx (= DIR/home, DIR/shared/fsx), and DIR.  All else that a job writes on a
# compute node (/tmp, /workspace ...) is that node's own.  Idempotent: a second run starts only what is missing.
# Stop it with down.sh DIR.  Needs root and the Debian packages that `packages` names (../install.sh packages).
#
# Knobs (environment):
#   CLUSTER_ID=0            several clusters at once: shifts bridge, subnet and ports
#   CLUSTER_P4DE=4 CLUSTER_TRN1=1 CLUSTER_P5=2 CLUSTER_G5=1   nodes of each instance type (table in lib/nodes.sh)
#   CLUSTER_ACCOUNTING=dbd  dbd | none      (none: no MariaDB, no slurmdbd, sacct says it is disabled)
#   CLUSTER_MINJOBAGE=120   seconds an ended job stays visible to squeue/scontrol
#   CLUSTER_SLURMDTIMEOUT=10  seconds of silence before a node is DOWN
#   CLUSTER_JOB_SUBMIT=lua  lua: lib/job_submit.lua prints to some users and refuses some jobs; none
#   CLUSTER_PYXIS=auto      auto: build spank_fake_pyxis.c if it lies beside this script; none; or a .so path
#   CLUSTER_SMALL=          size (64k) of a file system of its own at /fsx/small, to fill up
#   CLUSTER_ROOT=           run from this chroot (another Debian release = another Slurm version)
#   CLUSTER_WAIT=60         seconds to wait for readiness
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
T0=$(date +%s.%N)
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"; D=$(cd "$1" && pwd -P)
CLUSTER_ID=${CLUSTER_ID:-0}; CLUSTER_JOB_SUBMIT=${CLUSTER_JOB_SUBMIT:-lua}
CLUSTER_ACCOUNTING=${CLUSTER_ACCOUNTING:-dbd}; CLUSTER_MINJOBAGE=${CLUSTER_MINJOBAGE:-120}
CLUSTER_SLURMDTIMEOUT=${CLUSTER_SLURMDTIMEOUT:-10}; CLUSTER_PYXIS=${CLUSTER_PYXIS:-auto}; CLUSTER_ROOT=${CLUSTER_ROOT:-}
CLUSTER_WAIT=${CLUSTER_WAIT:-60}; CLUSTER_SMALL=${CLUSTER_SMALL:-}
CLUSTER_PACKAGES=$(cat "$HERE/packages")
die() { echo "up.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root"
[ "${#D}" -le 60 ] || die "DIR is too long (unix socket paths): $D"
p=$D; while [ "$p" != / ]; do   # daemons run as slurm, munge, mysql and must be able to walk to DIR
  [ $(( 0$(stat -c %a "$p") & 1 )) = 1 ] || [ "$p" = "$D" ] || die "$p is not traversable by other users: choose another DIR"
  p=$(dirname "$p"); done
chmod 755 "$D"
for c in slurmctld slurmd munged sshd; do
  [ -x "$CLUSTER_ROOT/usr/sbin/$c" ] || die "missing $c; apt-get install -y --no-install-recommends $CLUSTER_PACKAGES"; done
REST=1; [ -x "$CLUSTER_ROOT/usr/sbin/slurmrestd" ] || REST=0

SUBNET=10.77.$CLUSTER_ID; BR=wtslurm$CLUSTER_ID
CTLD_PORT=$((6817 + 100 * CLUSTER_ID)); DBD_PORT=$((6819 + 100 * CLUSTER_ID)); REST_PORT=$((6820 + 100 * CLUSTER_ID))
SSH_PORT=$((2222 + CLUSTER_ID))
. "$HERE/lib/nodes.sh"

mkdir -p "$D"/{etc/slurm/plugstack.conf.d,lib,bin,shims,log,pids,nodes,dev,ssh,home/researcher,shared/fsx,head/run,head/state}
exec 9>"$D/.lock"; flock -w 120 9 || die "another up.sh holds $D"

# --- liveness by recorded pid and start time (a pid alone could have been reused) -------------------
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { # NAME: the recorded namespace init of NAME still runs
  local pid st; read -r pid st 2>/dev/null < "$D/pids/$1" || return 1
  [ -n "$pid" ] && [ "$(started_at "$pid")" = "$st" ]; }

# --- files: configuration ----------------------------------------------------------------------------
cat > "$D/lib/env" <<E
D='$D' CLUSTER_ROOT='$CLUSTER_ROOT' BR=$BR SUBNET=$SUBNET CTLD_PORT=$CTLD_PORT DBD_PORT=$DBD_PORT REST_PORT=$REST_PORT
SSH_PORT=$SSH_PORT REST=$REST ACC=$CLUSTER_ACCOUNTING NODES='${NODES[*]}'
E
. "$HERE/lib/config.sh"; cp "$HERE"/lib/{enter,head-init,node-init}.sh "$D/lib/"; cp "$HERE/lib/clusterctl" "$D/bin/clusterctl"
chmod 755 "$D"/lib/*.sh "$D/bin/clusterctl"
for c in sbatch srun salloc squeue sacct sacctmgr scancel scontrol sinfo sattach sstat sprio; do
  printf '#!/bin/bash\nexec "%s/bin/clusterctl" head %s "$@"\n' "$D" "$c" > "$D/shims/$c"; chmod 755 "$D/shims/$c"; done

# --- pyxis stand-in ---------------------------------------------------------------------------------------
SO=
case $CLUSTER_PYXIS in
none) ;;
auto) # built with the very release that will load it (in CLUSTER_ROOT if there is one), and again when its source is newer
  if [ "$HERE/spank_fake_pyxis.c" -nt "$D/lib/spank_fake_pyxis.so" ]; then
    cp "$HERE/spank_fake_pyxis.c" "$D/lib/"
    if (if [ -n "$CLUSTER_ROOT" ]; then cp "$D/lib/spank_fake_pyxis.c" "$CLUSTER_ROOT/tmp/sfp$CLUSTER_ID.c"; chroot "$CLUSTER_ROOT" gcc -shared -fPIC -O1 -o "/tmp/sfp$CLUSTER_ID.so" "/tmp/sfp$CLUSTER_ID.c" && mv "$CLUSTER_ROOT/tmp/sfp$CLUSTER_ID.so" "$D/lib/sfp.new"
        else gcc -shared -fPIC -O1 -o "$D/lib/sfp.new" "$D/lib/spank_fake_pyxis.c"; fi); then mv "$D/lib/sfp.new" "$D/lib/spank_fake_pyxis.so"
    else echo "no pyxis stand-in: needs gcc, libc6-dev and libslurm-dev" >&2; fi
  fi
  [ ! -e "$D/lib/spank_fake_pyxis.so" ] || SO=$D/lib/spank_fake_pyxis.so ;;
*) SO=$CLUSTER_PYXIS ;;
esac
[ -z "$SO" ] || echo "required $SO" > "$D/etc/slurm/plugstack.conf.d/pyxis.conf"

# --- start ----------------------------------------------------------------------------------------------
if ! ip link show "$BR" > /dev/null 2>&1; then ip link add "$BR" type bridge; fi
ip addr replace "$SUBNET.1/24" dev "$BR"; ip link set "$BR" up
echo "$BR" > "$D/pids/.bridge"
[ -n "$CLUSTER_ROOT" ] || [ -d /fsx ] || { mkdir /fsx; : > "$D/pids/.fsx"; }
if [ -n "$CLUSTER_SMALL" ] && ! mountpoint -q "$D/shared/fsx/small"; then   # before the nodes, which then see it too
  mkdir -p "$D/shared/fsx/small"; mount -t tmpfs -o "size=$CLUSTER_SMALL,mode=1777" tmpfs "$D/shared/fsx/small"; fi
if alive head; then echo "head-node: already up"
else
  rm -f "$D"/head-run/head-node/{up,ctld-up}
  setsid unshare -m -u -p -f --mount-proc --kill-child /bin/bash "$D/lib/enter.sh" head head-node < /dev/null >> "$D/log/enter.head.out" 2>&1 9>&- & u=$!
  for ((k = 0; k < 200; k++)); do p=$(cat "/proc/$u/task/$u/children" 2>/dev/null || true); p=${p// /}; [ -n "$p" ] && break; sleep 0.01; done
  [ -n "${p:-}" ] || die "head namespace did not start: $(cat "$D/log/enter.head.out")"
  echo "$p $(started_at "$p")" > "$D/pids/head"
fi
for ((k = 0; k < CLUSTER_WAIT * 20; k++)); do [ -e "$D/head-run/head-node/munge/munge.socket.2" ] && break; sleep 0.05; done
for n in "${NODES[@]}"; do
  if alive "$n"; then echo up > "$D/nodes/$n/want"; else "$D/bin/clusterctl" start "$n"; fi; done

# --- readiness --------------------------------------------------------------------------------------------
step() { printf '%-28s %6.2f s\n' "$1" "$(echo "$(date +%s.%N) - $T0" | bc 2>/dev/null || awk -v a="$(date +%s.%N)" -v b="$T0" 'BEGIN{print a-b}')"; }
END=$((SECONDS + CLUSTER_WAIT)); wait_for() { local what=$1; shift; until "$@" > /dev/null 2>&1; do [ $SECONDS -lt $END ] || die "not ready: $what (see $D/log)"; sleep 0.1; done; step "$what"; }
wait_for "head daemons" test -e "$D/head-run/head-node/up"
# all must answer (no '*'), none DOWN or UNKNOWN; drained nodes count as answering: they stay as they were left
nodes_ok() { [ "$("$D/bin/clusterctl" head -u root sinfo -hN -o '%N %T' | sort -u | grep -cE ' (idle|mixed|allocated|completing|drained|draining|reserved)$')" -ge "${#NODES[@]}" ]; }
wait_for "${#NODES[@]} nodes answer" nodes_ok
wait_for "ssh login" ssh -F "$D/ssh/config" head-node true
if [ "$REST" = 1 ]; then rest_ok() { (exec 3<>"/dev/tcp/127.0.0.1/$REST_PORT") 2>/dev/null; }; wait_for "slurmrestd listening" rest_ok; fi
V=$("$D/bin/clusterctl" head -u root scontrol --version)
step "ready: $V"
echo "ssh -F $D/ssh/config head-node sinfo      # user researcher; also root, outsider"
echo "PATH=$D/shims:\$PATH sbatch ...           # the same without ssh"
[ "$REST" = 0 ] || echo "curl -H X-SLURM-USER-NAME:researcher -H X-SLURM-USER-TOKEN:\$($D/bin/clusterctl token | cut -d= -f2) http://127.0.0.1:$REST_PORT/openapi/v3"
