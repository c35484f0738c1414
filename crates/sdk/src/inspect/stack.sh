# Prints the Python stack of one rank's process by py-spy: a line `weftrun-stack PID`, then py-spy's output. $1: global rank.
# Exit code 96: no such process; 98: no py-spy.
command -v py-spy >/dev/null 2>&1 || exit 98
# Its children have its environment: the rank's own process is the oldest, which usually has the smallest number.
for pid in $(ls /proc | grep -x '[0-9]*' | sort -n); do
  case $(readlink "/proc/$pid/exe" 2>/dev/null) in */python*|*/pypy*) ;; *) continue ;; esac
  variables=$(tr '\0\n' '\n ' <"/proc/$pid/environ" 2>/dev/null) || continue
  of() { printf '%s\n' "$variables" | sed -n "s/^$1=//p" | head -n 1; }
  [ -z "$SLURM_JOB_ID" ] || [ "$(of SLURM_JOB_ID)" = "$SLURM_JOB_ID" ] || continue
  [ -z "$WEFTRUN_EXEC_OF" ] || [ "$(of WEFTRUN_SUBMISSION)" = "$WEFTRUN_EXEC_OF" ] || continue
  for name in RANK OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_PROCID; do
    rank=$(of $name)
    [ -n "$rank" ] && break
  done
  [ "$rank" = "$1" ] || continue
  echo "weftrun-stack $pid"
  exec py-spy dump --pid "$pid" 2>&1
done
exit 96
