#!/bin/bash
# Rendered by weftrun. By hand, in the home directory: mkdir -p weftrun && sbatch THIS_FILE
#SBATCH --job-name=setup
#SBATCH --comment=weftrun:0a1b2c3d000000000000000000000000:auto
#SBATCH --account=ml-research
#SBATCH --qos=normal
#SBATCH --output=weftrun/setup-%j-0a1b2c3d.log
#SBATCH --open-mode=append
#SBATCH --export=NONE
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --mem=0
#SBATCH --exclusive

set -eo pipefail

weftrun_job() {
module load cuda/12.8
source /fsx/venv/bin/activate
export PYTHONUNBUFFERED=1
# Secrets stay in files on the cluster.
weftrun_secrets="$HOME/.config/weftrun/secrets"
WANDB_API_KEY=$(cat -- "$weftrun_secrets"/wandb/api-key)
export WANDB_API_KEY

# >>> weftrun fabric >>>
# detect.nccl-debug: NCCL logs its transport only with NCCL_DEBUG=INFO
export NCCL_DEBUG=INFO
# <<< weftrun fabric <<<

# Where the ranks meet. Not in a pipe: of a long list its reader would end `scontrol` with SIGPIPE, and that the job.
read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) NNODES=1 WORLD_SIZE=8

# The job's code, where every node sees it.
weftrun_source=$weftrun_base.code
mkdir -- "$weftrun_source" 2> /dev/null || :
if [ ! -d "$weftrun_source" ] || [ -L "$weftrun_source" ] || [ ! -O "$weftrun_source" ]; then
  echo "weftrun: $weftrun_source cannot be created, or belongs to another user" >&2
  exit 1
fi
[ -d "$weftrun_source"/.git ] || GIT_ALLOW_PROTOCOL=https:ssh:file GIT_TERMINAL_PROMPT=0 $(command -v timeout > /dev/null && echo timeout 1800) git clone --quiet -- https://github.com/pytorch/examples "$weftrun_source" || { echo 'weftrun: error: the code was not fetched: see git'\''s message above' >&2; exit 1; }
GIT_ALLOW_PROTOCOL=https:ssh:file git -C "$weftrun_source" checkout --quiet main -- || { echo 'weftrun: error: the code was not fetched: revision main' >&2; exit 1; }

# -K1: a task that fails ends the others. -l: each line begins with the number of its task.
srun -K1 -l --export=ALL --chdir="$weftrun_source" \
  sh -c 'trap "" USR1 USR2; exec torchrun --nnodes="$NNODES" --nproc-per-node=8 --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"' torchrun distributed/ddp-tutorial-series/multinode.py
}

# weftrun's own part: a submission that Slurm has twice runs once; attempts and the exit code go to a file beside the log.
weftrun_base="$HOME/"weftrun/"setup-${SLURM_JOB_ID}-0a1b2c3d"
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
  printf '#weftrun log=1 attempt=%s labels=node tasks=worker:1 ranks=8\n' "$weftrun_attempt"
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
