# Requests a dump of PyTorch's flight recorder from the ranks of one node, and prints each: a line `weftrun-dump RANK BYTES`,
# then the bytes. A rank that writes none has no BYTES. $1: seconds to wait. Exit code 96: no rank has a pipe.
#
# PyTorch makes a named pipe PREFIX RANK .pipe in each process, reads it once a second, and writes PREFIX RANK
# (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, DumpPipe; read 2026-11-23).

# The settings are in the environment of the ranks. A step of Slurm does not have it: it reads that of a process of its job.
pids=
for file in $(grep -ls TORCH_NCCL_DEBUG_INFO_PIPE_FILE= /proc/[0-9]*/environ 2>/dev/null); do
  variables=$(tr '\0\n' '\n ' <"$file" 2>/dev/null) || continue
  of() { printf '%s\n' "$variables" | sed -n "s/^$1=//p" | head -n 1; }
  [ -z "$SLURM_JOB_ID" ] || [ "$(of SLURM_JOB_ID)" = "$SLURM_JOB_ID" ] || continue
  [ -z "$WEFTRUN_EXEC_OF" ] || [ "$(of WEFTRUN_SUBMISSION)" = "$WEFTRUN_EXEC_OF" ] || continue
  pids="$pids ${file%/environ}"
  [ -z "$TORCH_NCCL_DEBUG_INFO_PIPE_FILE" ] || continue
  TORCH_NCCL_DEBUG_INFO_PIPE_FILE=$(of TORCH_NCCL_DEBUG_INFO_PIPE_FILE)
  TORCH_NCCL_DEBUG_INFO_TEMP_FILE=$(of TORCH_NCCL_DEBUG_INFO_TEMP_FILE)
  TORCH_FR_DUMP_TEMP_FILE=$(of TORCH_FR_DUMP_TEMP_FILE)
  XDG_CACHE_HOME=$(of XDG_CACHE_HOME) HOME=$(of HOME)
done
[ -n "$TORCH_NCCL_DEBUG_INFO_PIPE_FILE" ] || exit 96

# Pipes remain after their processes have ended, and another job of the same name on this node has the same names.
open_in_job() {
  for process in $pids; do
    for descriptor in "$process"/fd/*; do
      [ -p "$descriptor" ] && [ "$descriptor" -ef "$1" ] && return
    done
  done
  return 1
}
pause() { sleep 0.2 2>/dev/null || sleep 1; }
# Prints the file that a rank writes. Which name counts depends on the version.
dump_of() {
  for prefix in "$TORCH_FR_DUMP_TEMP_FILE" "$TORCH_NCCL_DEBUG_INFO_TEMP_FILE" "${XDG_CACHE_HOME:-$HOME/.cache}/torch/comm_lib_trace_rank_" /tmp/nccl_trace_rank_; do
    [ -n "$prefix" ] && [ -s "$prefix$1" ] && [ "$prefix$1" -nt "$mark" ] && { printf '%s' "$prefix$1"; return; }
  done
}
size_of() { wc -c <"$1" 2>/dev/null | tr -d ' '; }

mark=$(mktemp) || exit 1
trap 'rm -f "$mark"' EXIT
pause
ranks=
for pipe in "$TORCH_NCCL_DEBUG_INFO_PIPE_FILE"*.pipe; do
  rank=${pipe#"$TORCH_NCCL_DEBUG_INFO_PIPE_FILE"}
  rank=${rank%.pipe}
  case $rank in ''|*[!0-9]*) continue ;; esac
  [ -p "$pipe" ] && open_in_job "$pipe" || continue
  # Opened for reading too, so that it does not block if the process has just ended.
  echo 1 1<>"$pipe" && ranks="$ranks $rank"
done
[ -n "$ranks" ] || exit 96

# Every rank has the whole time, and two looks after it: a dump is whole when it no longer grows.
end=$(($(date +%s) + $1)) late=0
while [ -n "$ranks" ] && [ "$late" -lt 2 ]; do
  [ "$(date +%s)" -lt "$end" ] || late=$((late + 1))
  left=
  for rank in $ranks; do
    file=$(dump_of "$rank")
    size=${file:+$(size_of "$file")}
    eval "before=\$size_$rank size_$rank=\$size"
    if [ -n "$size" ] && [ "$size" = "$before" ]; then
      echo "weftrun-dump $rank $size"
      head -c "$size" "$file"
    else
      left="$left $rank"
    fi
  done
  ranks=$left
  [ -z "$ranks" ] || pause
done
for rank in $ranks; do
  echo "weftrun-dump $rank "
done
