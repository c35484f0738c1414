#!/bin/bash
# node-init.sh NAME: pid 1 of a compute node; slurmd runs while DIR/nodes/NAME/want says 'up'
. "$(dirname "$0")/env"; N=$1; export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin; unset SLURM_CONF
S=0; trap 'kill -TERM $S 2>/dev/null; for ((k=0;k<60;k++)); do kill -0 $S 2>/dev/null || break; sleep 0.05; done; exit 0' TERM
ip link set lo up
for ((k = 0; k < 200; k++)); do ip -4 addr show dev eth0 2>/dev/null | grep -q inet && break; sleep 0.02; done
mkdir -p "$D/nodes/$N/spool"
# slurmd retries its registration with growing pauses: starting it once slurmctld listens is faster
for ((k = 0; k < 600; k++)); do [ -e "$D/head-run/head-node/ctld-up" ] && break; sleep 0.05; done
while :; do
  if [ "$(cat "$D/nodes/$N/want" 2>/dev/null)" = up ]; then slurmd -D >> "$D/log/slurmd.$N.out" 2>&1 & S=$!; echo $S > "$D/nodes/$N/slurmd.inner"
    wait $S; [ "$(cat "$D/nodes/$N/want")" = up ] && sleep 0.5
  else sleep 0.2 & wait $!; fi
done
