#!/bin/bash
# Rendered by weftrun. By hand, in the home directory: mkdir -p weftrun && sbatch THIS_FILE
#SBATCH --job-name=all-reduce
#SBATCH --comment=weftrun:0a1b2c3d000000000000000000000000:efa
#SBATCH --output=weftrun/all-reduce-%j-0a1b2c3d.log
#SBATCH --open-mode=append
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --constraint=p4de.24xlarge
#SBATCH --mem=0
#SBATCH --exclusive

set -eo pipefail

weftrun_job() {
export PYTHONUNBUFFERED=1

# >>> weftrun fabric >>>
# efa.device-rdma: older plugins use GPUDirect RDMA only if FI_EFA_USE_DEVICE_RDMA=1
export FI_EFA_USE_DEVICE_RDMA=1
# detect.nccl-debug: NCCL logs its transport only with NCCL_DEBUG=INFO
export NCCL_DEBUG=INFO
# <<< weftrun fabric <<<

# Where the ranks meet. Not in a pipe: of a long list its reader would end `scontrol` with SIGPIPE, and that the job.
read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) NNODES=4 WORLD_SIZE=32

# -K1: a task that fails ends the others. -l: each line begins with the number of its task.
srun -K1 -l --export=ALL --mpi=pmi2 --container-image='public.ecr.aws#hpc-cloud/nccl-tests:latest' --no-container-mount-home --container-env=FI_EFA_USE_DEVICE_RDMA,NCCL_DEBUG,PYTHONUNBUFFERED,MASTER_ADDR,MASTER_PORT,WORLD_SIZE,NNODES \
  /opt/nccl-tests/build/all_reduce_perf -b 8 -e 16G
}

# weftrun's own part: a submission that Slurm has twice runs once; attempts and the exit code go to a file beside the log.
weftrun_base="$HOME/"weftrun/"all-reduce-${SLURM_JOB_ID}-0a1b2c3d"
weftrun_once="$HOME/"weftrun/.submit-0a1b2c3d000000000000000000000000 weftrun_me=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
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
weftrun_attempt=
[ ! -f "$weftrun_base.exit" ] || weftrun_attempt=$(sed -E -n '1s/^[0-9-]+ (0|[1-9][0-9]{0,5})$/\1/p' "$weftrun_base.exit" 2> /dev/null) || weftrun_attempt=
weftrun_note() { # the exit code (- while the job runs) and the attempt, in a file beside the log
  { rm -f "$weftrun_base.exit.new" && (set -C; echo "$1 $weftrun_attempt" > "$weftrun_base.exit.new") && mv -f "$weftrun_base.exit.new" "$weftrun_base.exit"; } || :
}
weftrun_begin() {
  weftrun_attempt=$((${weftrun_attempt:--1} + 1))
  printf '#weftrun log=1 attempt=%s labels=rank tasks=worker:32 ranks=32\n' "$weftrun_attempt"
  weftrun_note -
}
weftrun_why() { # what srun reported: `lost` for a failed launch, else the exit code of the task that failed first
  tail -c 16777216 -- "$weftrun_base.log" 2> /dev/null | awk '
    /^#weftrun log=1 / { code = ""; lost = 0 }
    /^srun: error: Application launch failed: / { lost = 1 }
    code == "" && sub(/^srun: error: [^:]*: tasks? [0-9,-]*: /, "") {
      code = /^Exited with exit code/ ? $5 + 0 : /^Segmentation fault/ ? 139 : /^Aborted/ ? 134 : /^Bus error/ ? 135 : /^Killed/ ? 137 : "" }
    END { print lost ? "lost" : code }' || :
}
weftrun_end() {
  { weftrun_code=$? weftrun_cause=; set +x; } 2> /dev/null
  trap - EXIT
  [ "$weftrun_code" -eq 0 ] || weftrun_cause=$(weftrun_why)
  if [ "$weftrun_code" -ge 128 ] && [ -n "${weftrun_cause#lost}" ]; then weftrun_code=$weftrun_cause; fi
  printf '#weftrun end attempt=%s code=%s\n' "$weftrun_attempt" "$weftrun_code"
  weftrun_note "$weftrun_code"
  exit "$weftrun_code"
}
trap weftrun_end EXIT
trap : USR1 USR2 # over slurmrestd the script gets the ranks' signals as well
weftrun_begin
weftrun_job
