#!/bin/bash
# record.sh CLUSTER OUT - run jobs of every kind on a cluster, and keep what squeue, sacct and sinfo print of them, asked as the backend
# asks. OUT/*.txt are the cases of tests/cases/slurm. About a minute; the cluster must have a node to spare, which is powered off.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 CLUSTER OUT" >&2; exit 2; }
CLUSTER=$1 OUT=$2; mkdir -p "$OUT"
on() { ssh -F "$CLUSTER/ssh/config" head-node "$@"; }
submit() { on "cd /fsx && sbatch --parsable $*" | tail -1; }
F=$'\x1f'
QUEUE="%i$F%A$F%K$F%T$F%r$F%N$F%D$F%P$F%V$F%S$F%e$F%u$F%k$F%j"$'\x1e'
ACCOUNTING=JobID,JobIDRaw,State,ExitCode,NodeList,NNodes,Partition,Submit,Start,End,SubmitLine,JobName
MARK=weftrun:0a1b2c3d000000000000000000000000:efa
power=$(submit -p compute-p5 -N2 --requeue -J power-off --wrap "'srun sleep 300'")
submit -J good --comment=$MARK --wrap true
submit -J "'two words = \"x\"'" --wrap "'exit 255'"
submit -J "\$'new\nline'" --wrap "'kill -9 \$\$'"
submit -J tasks -a 0-5%2 --wrap "'[ \$SLURM_ARRAY_TASK_ID != 1 ]; sleep 4'"
submit -J het -N1 : -p inference-gpu -N1 --wrap "'srun --het-group=0,1 hostname; exit 3'"
held=$(submit -H -J held --wrap true); on scancel "$(submit -H -J cancelled --wrap true)"
submit -d "afternotok:$held" -J waits --wrap true; submit -b now+1hour -J later --wrap true
submit -N 6 -J too-many --wrap true || true          # 24.11 refuses it, the others keep it for ever
on "head -c 400 /dev/zero > /fsx/afile; cd /fsx; sbatch --parsable -J no-output -o /fsx/afile/x.out --wrap true" || true
node=; for ((k = 0; k < 100; k++)); do node=$(on "squeue -h -t R -j $power,$power -o %N"); [ -n "$node" ] && break; sleep 0.3; done
node=$(on scontrol show hostnames "$node" | tail -1)
"$CLUSTER/bin/clusterctl" crash "$node"
for ((k = 0; k < 300; k++)); do [ "$(on "squeue -h -t PD -j $power,$power -o %r")" = "" ] || break; sleep 0.3; done
sleep 2
on "SLURM_TIME_FORMAT=%s squeue -h -t all --me -o '$QUEUE'" > "$OUT/queue.txt"
on "SLURM_TIME_FORMAT=%s sacct -X -D -P -n --delimiter='$F' -S now-1hour --format=$ACCOUNTING" > "$OUT/accounting.txt"
on "sinfo -h -N -o '%P$F%T$F%c$F%m$F%G$F%f$F%N'" > "$OUT/nodes.txt"
on "srun --mpi=list 2>&1" > "$OUT/mpi.txt"
on "scancel --me" || true
"$CLUSTER/bin/clusterctl" start "$node"
wc -l "$OUT"/{queue,accounting,nodes,mpi}.txt
