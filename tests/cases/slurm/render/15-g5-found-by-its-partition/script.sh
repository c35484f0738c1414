#!/bin/bash
# Rendered by weftrun. By hand: mkdir -p /home/researcher/weftrun && sbatch THIS_FILE
#SBATCH --job-name=serve
#SBATCH --comment=weftrun:0a1b2c3d000000000000000000000000:efa
#SBATCH --output=/home/researcher/weftrun/serve-%j-0a1b2c3d.log
#SBATCH --open-mode=append
#SBATCH --partition=inference-gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --mem=0
#SBATCH --cpus-per-task=48
#SBATCH --exclusive

set -eo pipefail

# If Slurm has this submission twice, only the first job to start runs it.
weftrun_once=/home/researcher/weftrun/.submit-0a1b2c3d000000000000000000000000 weftrun_me=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
[ -z "${WEFTRUN_ONCE:-}" ] || mkdir -p -- "$weftrun_once" || :
unset WEFTRUN_ONCE
if [ -d "$weftrun_once" ] && [ ! -L "$weftrun_once" ] && [ -O "$weftrun_once" ]; then
  ln -s -n -- "$weftrun_me" "$weftrun_once/job" 2> /dev/null || :
  weftrun_first=$(readlink -- "$weftrun_once/job") || weftrun_first=$weftrun_me
  if [ "$weftrun_first" != "$weftrun_me" ]; then
    echo "weftrun: job $weftrun_first runs this submission already; job $weftrun_me is a copy of it and ends" >&2
    exit 75
  fi
fi

# What weftrun reads later: the file of the exit code, and two lines of the log.
weftrun_base=/home/researcher/weftrun/"serve-${SLURM_JOB_ID}-0a1b2c3d"
weftrun_attempt=$(grep -a -c '^#weftrun log=1 ' "$weftrun_base.log" 2> /dev/null) || weftrun_attempt=0
rm -f "$weftrun_base.exit"
weftrun_begin() {
  printf '#weftrun log=1 attempt=%s labels=node tasks=worker:2 ranks=8\n' "$weftrun_attempt"
}
weftrun_first() {
  awk '/^#weftrun log=1 /{first=""} first=="" && /^srun: error: [^:]*: tasks? [0-9,-]*: /{first=$0} END{print first}' "$weftrun_base.log" |
    sed -n -e 's/.*: Exited with exit code \([0-9]*\).*/\1/p' -e 's/.*: Segmentation fault.*/139/p' -e 's/.*: Aborted.*/134/p' -e 's/.*: Bus error.*/135/p' -e 's/.*: Killed.*/137/p'
}
weftrun_end() {
  weftrun_code=$?
  trap - EXIT
  # srun tells the greatest code, and the ranks that -K1 ended have 143: the first failure is the job's.
  if [ "$weftrun_code" -ge 128 ]; then weftrun_code=$(weftrun_first 2> /dev/null | grep . || echo "$weftrun_code"); fi
  printf '#weftrun end attempt=%s code=%s\n' "$weftrun_attempt" "$weftrun_code"
  { rm -f "$weftrun_base.exit.new" && (set -C; printf '%s %s\n' "$weftrun_code" "$weftrun_attempt" > "$weftrun_base.exit.new") && mv -f "$weftrun_base.exit.new" "$weftrun_base.exit"; } || :
  exit "$weftrun_code"
}
trap weftrun_end EXIT
weftrun_begin

export PYTHONUNBUFFERED=1

# >>> weftrun fabric >>>
# efa.library-path: the job has no container: libfabric and the NCCL plugin are those of the node's image
export LD_LIBRARY_PATH=/opt/amazon/efa/lib:/opt/amazon/efa/lib64:/opt/amazon/ofi-nccl/lib:/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/opt/amazon/ofi-nccl/lib64"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# detect.nccl-debug: NCCL says only then which transport it uses
export NCCL_DEBUG=INFO
# <<< weftrun fabric <<<

# Where the ranks meet.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) NNODES=2 WORLD_SIZE=8

srun -K1 -l --export=ALL --cpu-bind=none \
  sh -c 'trap "" USR1 USR2; exec torchrun --nnodes="$NNODES" --nproc-per-node=4 --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"' torchrun serve.py
