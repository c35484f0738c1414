#!/bin/sh
# What `weftrun verify` runs once for each rank: a probe of the node, the benchmark, and the counters of its network
# interfaces before and after it. Needs only sh, and nccl-tests or PyTorch.
collectives=$1 low=$2 high=$3 rounds=$4
LOCAL_RANK=${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}

# Prints a JSON string: only printable ASCII without quotes and backslashes.
text() { printf '"%s"' "$(printf '%s' "$1" | tr -cd ' !#-[]-~' | cut -c 1-200)"; }
# Prints a file's first line.
first() { [ -r "$1" ] && head -n 1 "$1" 2>/dev/null; }

interfaces() {
  comma=
  for port in /sys/class/infiniband/*/ports/*; do
    [ -d "$port" ] || continue
    device=${port#/sys/class/infiniband/}
    printf '%s{"device":' "$comma"; text "${device%%/*}:${port##*/}"
    printf ',"state":'; text "$(first "$port/state")"
    printf ',"rate":'; text "$(first "$port/rate")"
    printf ',"link":'; text "$(first "$port/link_layer")"
    printf ',"gids":%s' "$(cat "$port"/gids/* 2>/dev/null | grep -vc '^0000:0000:0000:0000:0000:0000:0000:0000$')"
    printf ',"counters":{'; counters "$port"; printf '}}'
    comma=,
  done
}
counters() {
  between=
  for counter in "$1"/counters/port_xmit_data "$1"/counters/port_rcv_data "$1"/counters/*err* "$1"/counters/*discard* "$1"/hw_counters/*; do
    value=$(first "$counter") || continue
    case $value in ''|*[!0-9]*) continue ;; esac
    printf '%s' "$between"; text "${counter##*/}"; printf ':%s' "$value"
    between=,
  done
}
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | sort | uniq -c | sed 's/^ *//' | tr '\n' ';'; }

probe() {
  printf 'weftrun-probe {"host":'; text "$(uname -n)"
  printf ',"kernel":'; text "$(uname -r)"
  if command -v nvidia-smi >/dev/null 2>&1; then
    printf ',"gpus":'; text "$(smi name)"
    printf ',"driver":'; text "$(smi driver_version)"
    printf ',"ecc_errors":'; text "$(smi ecc.errors.uncorrected.volatile.total)"
    printf ',"nvlinks":%s' "$(nvidia-smi nvlink --status 2>/dev/null | grep -c 'GB/s')"
  fi
  printf ',"gdrdrv":%s' "$([ -e /dev/gdrdrv ] && echo true || echo false)"
  printf ',"hugepages_2mi":'; text "$(first /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"
  printf ',"memlock":'; text "$(ulimit -l 2>/dev/null)"
  printf ',"open_files":'; text "$(ulimit -n 2>/dev/null)"
  printf ',"shm":'; text "$(df -k /dev/shm 2>/dev/null | awk 'NR == 2 { print $2 }')"
  command -v fi_info >/dev/null 2>&1 && { printf ',"libfabric":'; text "$(fi_info --version 2>/dev/null | grep '^libfabric:')"; }
  printf ',"interfaces":[%s]}\n' "$(interfaces)"
}
after() { printf 'weftrun-after {"host":'; text "$(uname -n)"; printf ',"clock":%s' "$(date +%s)"; printf ',"interfaces":[%s]}\n' "$(interfaces)"; }

# Runs a program, and prints the counters of the interfaces after it; ends with the program's exit code.
measured() {
  "$@"; code=$?
  [ "$LOCAL_RANK" = 0 ] && after
  return $code
}

[ "$LOCAL_RANK" = 0 ] && probe
[ "$collectives" = none ] && exit 0

PATH=$PATH:/opt/nccl-tests/build:/usr/local/nccl-tests/build:/workspace/nccl-tests/build:/opt/rccl-tests/build
tests=$(command -v all_reduce_perf) || tests=
python=$(command -v python3 || command -v python) || python=
if [ -n "$OMPI_COMM_WORLD_RANK$PMIX_RANK$PMI_RANK" ] && [ -z "$RANK" ]; then
  # Started by mpirun: nccl-tests that are built with MPI find the other ranks by themselves.
  [ -n "$tests" ] || { echo "weftrun verify: the image has no all_reduce_perf: use one with nccl-tests built with MPI, or --launch per-rank with PyTorch" >&2; exit 3; }
  for name in $(echo "$collectives" | tr , ' '); do
    [ "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}" = 0 ] && echo "# weftrun-verify $name"
    measured "${tests%/*}/${name}_perf" -b "$low" -e "$high" -f 2 -n "$rounds" -g 1 || exit $?
  done
elif [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null; then
  measured "$python" -c "$(cat <<'PYTHON'
@BENCH@
PYTHON
)" "$collectives" "$low" "$high" "$rounds"
elif [ -n "$tests" ] && [ "${NNODES:-1}" = 1 ] && [ "$WORLD_SIZE" = "${LOCAL_WORLD_SIZE:-$WORLD_SIZE}" ]; then
  # One node needs no MPI: one process drives all GPUs.
  [ "${RANK:-0}" = 0 ] || exit 0
  for name in $(echo "$collectives" | tr , ' '); do
    [ "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}" = 0 ] && echo "# weftrun-verify $name"
    measured "${tests%/*}/${name}_perf" -b "$low" -e "$high" -f 2 -n "$rounds" -g "$WORLD_SIZE" || exit $?
  done
else
  if [ -n "$tests" ]; then echo "weftrun verify: nccl-tests on several nodes need mpirun: use --launch mpi" >&2
  else echo "weftrun verify: the image has neither PyTorch nor nccl-tests: use an image such as nvcr.io/nvidia/pytorch" >&2; fi
  exit 3
fi
