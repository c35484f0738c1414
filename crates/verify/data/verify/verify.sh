#!/bin/sh
# A script of weftrun: what it names is no evidence of a fabric.
# What `weftrun verify` runs once for each rank: a probe of the node, the benchmark, and the counters of its network
# interfaces before and after it. Needs only sh, and nccl-tests or PyTorch.
collectives=$1 low=$2 high=$3 rounds=$4
LOCAL_RANK=${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-0}}

# Prints a JSON string: only printable ASCII without quotes and backslashes.
text() { printf '"%s"' "$(printf '%s' "$1" | tr -cd ' !#-[]-~' | cut -c 1-200)"; }
# Prints a file's first line.
first() { [ -r "$1" ] && head -n 1 "$1" 2>/dev/null; }

# Prints the name of the driver of a device, from a link to it.
driver() { link=$(readlink "$1/driver" 2>/dev/null) && printf '%s' "${link##*/}"; }
# Counts equal lines: `2 RoCE v2; 2 IB/RoCE v1;`.
counted() { sort | uniq -c | sed 's/^ *//' | tr '\n' ';'; }
# Prints the types of the port's address entries that are set.
gids() {
  for gid in "$1"/gids/*; do
    case $(first "$gid") in ''|0000:0000:0000:0000:0000:0000:0000:0000) continue ;; esac
    echo "$(first "$1/gid_attrs/types/${gid##*/}" 2>/dev/null)"
  done
}
interfaces() {
  comma=
  for port in /sys/class/infiniband/*/ports/*; do
    [ -d "$port" ] || continue
    base=${port%/ports/*}
    printf '%s{"class":"infiniband","device":' "$comma"; text "${base##*/}:${port##*/}"
    printf ',"state":'; text "$(first "$port/state")"
    printf ',"rate":'; text "$(first "$port/rate")"
    printf ',"link":'; text "$(first "$port/link_layer")"
    printf ',"driver":'; text "$(driver "$base/device")"
    printf ',"node_type":'; text "$(first "$base/node_type")"
    printf ',"firmware":'; text "$(first "$base/fw_ver")"
    printf ',"gids":'; text "$(gids "$port" | counted)"
    printf ',"counters":{'; counters "$port"; printf '}}'
    comma=,
  done
  for card in /sys/class/cxi/*; do
    [ -d "$card" ] || continue
    printf '%s{"class":"cxi","device":' "$comma"; text "${card##*/}"
    printf ',"driver":'; text "$(driver "$card/device")"
    printf ',"firmware":'; text "$(first "$card/device/uc/fw_version")"
    printf '}'
    comma=,
  done
}
counters() {
  between=
  for counter in "$1"/counters/port_xmit_data "$1"/counters/port_rcv_data "$1"/counters/*err* "$1"/counters/*discard* "$1"/counters/link_downed "$1"/hw_counters/*; do
    value=$(first "$counter") || continue
    case $value in ''|*[!0-9]*) continue ;; esac
    printf '%s' "$between"; text "${counter##*/}"; printf ':%s' "$value"
    between=,
  done
}
# Prints how many bytes each card has carried, both ways. Ports of InfiniBand and RoCE count words of four; EFA has counters of its own.
carried() {
  for port in /sys/class/infiniband/*/ports/*; do
    bytes=0 base=${port%/ports/*}
    for counter in counters/port_xmit_data counters/port_rcv_data hw_counters/tx_bytes hw_counters/rx_bytes hw_counters/rdma_read_bytes hw_counters/rdma_write_bytes; do
      value=$(first "$port/$counter")
      case $value in ''|*[!0-9]*) continue ;; esac
      case $counter in counters/*) value=$((4 * value)) ;; esac
      bytes=$((bytes + value))
    done
    echo "${base##*/}:${port##*/} $bytes"
  done
}
# Prints the cards that carried 500 MB or more within a second: how many, their MB, and the name of one.
busy_cards() {
  [ -d /sys/class/infiniband ] || return
  { carried; sleep 1; carried; } 2>/dev/null | awk '
    !($1 in before) { before[$1] = $2; next }
    { moved = ($2 - before[$1]) / 1000000; if (moved >= 500) { cards++; all += moved; name = $1 } }
    END { if (cards) printf "%d %d %s", cards, all, name }'
}
smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | counted; }
# Prints the state of each GPU as a list of strings, asked for before anything of this job uses one.
gpu_states() {
  comma=
  nvidia-smi --query-gpu=index,memory.used,utilization.gpu,power.limit,power.default_limit,mig.mode.current,persistence_mode,pcie.link.width.current,pcie.link.width.max,clocks_throttle_reasons.active --format=csv,noheader,nounits 2>/dev/null | while read -r gpu; do
    printf '%s' "$comma"; text "$gpu"
    comma=,
  done
}
# Prints the programs on the GPUs, each with the job or the user that it is of: `813 python3 @job_4711;`. A container sees neither.
gpu_processes() {
  nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>/dev/null | tr -d ,@ | sort -u | while read -r pid name; do
    of=$(grep -o -E 'job_[0-9]+|pod[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
    of=${of:-$(ps -o user= -p "$pid" 2>/dev/null)}
    printf '%s %s%s;' "$pid" "$name" "${of:+ @$of}"
  done
}
# Prints the nearest way from each GPU to a network card, of those that nvidia-smi knows.
nic_paths() {
  nvidia-smi topo -m 2>/dev/null | awk '
    !cards { for (i = 1; i <= NF; i++) if ($i ~ /^(NIC[0-9]|mlx5_)/) { card[i + 1] = 1; cards = 1 } next }
    /^GPU[0-9]/ { best = 0; for (i in card) { at = index("PIX PXB PHB NODE SYS", $i); if (at && (!best || at < best)) { best = at; way = $i } } if (best) print way }' | counted
}
# Prints what the IOMMU does with the traffic of each GPU.
iommu() { for gpu in /sys/bus/pci/drivers/nvidia/*:*; do first "$gpu/iommu_group/type"; done | counted; }
# Prints `,"NAME":"VALUE"`, or nothing without a value.
fact() { [ -z "$2" ] || { printf ',"%s":' "$1"; text "$2"; }; }
# Prints the file that a library's name stands for, in the folders where the job's programs search.
library() {
  for folder in $(printf '%s' "$LD_LIBRARY_PATH" | tr : ' ') /opt/amazon/ofi-nccl/lib* /opt/amazon/ofi-nccl/lib/*-linux-gnu /opt/amazon/efa/lib* /opt/aws-ofi-nccl/lib* /opt/hpcx/nccl_rdma_sharp_plugin/lib /usr/local/lib /usr/lib64 /usr/lib /usr/lib/*-linux-gnu /opt/rocm/lib; do
    [ -e "$folder/$1" ] && { readlink -f "$folder/$1"; return; }
  done
}
# Prints the network cards of the node with their speed and MTU.
cards() {
  for card in /sys/class/net/*; do
    [ -e "$card/device" ] || continue
    # The kernel gives -1, or an error, where the link or the driver has no speed.
    speed=$(first "$card/speed")
    case $speed in ''|-*) speed='unknown speed' ;; *) speed="$speed Mb/s" ;; esac
    printf '%s %s mtu %s %s;' "${card##*/}" "$speed" "$(first "$card/mtu")" "$(first "$card/operstate")"
  done
}

probe() {
  printf 'weftrun-probe {"host":'; text "$(uname -n)"
  printf ',"clock":%s' "$(date +%s)"
  # First: the other ranks of the node are starting.
  if command -v nvidia-smi >/dev/null 2>&1; then
    printf ',"gpu_states":[%s]' "$(gpu_states)"
    fact gpu_processes "$(gpu_processes)"
  fi
  fact nic_traffic "$(busy_cards)"
  fact kernel "$(uname -r)"
  fact numa_nodes "$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | grep -c . | grep -v '^0$')"
  fact sockets "$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id 2>/dev/null | sort -u | grep -c . | grep -v '^0$')"
  if command -v nvidia-smi >/dev/null 2>&1; then
    fact gpus "$(smi name)"
    fact driver "$(smi driver_version)"
    fact cuda "$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p')"
    fact ecc_mode "$(smi ecc.mode.current)"
    fact ecc_errors "$(smi ecc.errors.uncorrected.volatile.total)"
    links=$(nvidia-smi nvlink --status 2>/dev/null)
    printf ',"nvlinks":%s,"nvlinks_inactive":%s' "$(printf '%s\n' "$links" | grep -c 'GB/s')" "$(printf '%s\n' "$links" | grep -c -i inactive)"
    fact nvlink_rates "$(printf '%s\n' "$links" | grep -o '[0-9.]* GB/s' | counted)"
    # How each pair of GPUs is joined: NV18 is by 18 links.
    fact nvlink_pairs "$(nvidia-smi topo -m 2>/dev/null | grep '^GPU[0-9]' | grep -o 'NV[0-9][0-9]*' | counted)"
    fact gpu_nic_paths "$(nic_paths)"
    fact gpu_iommu "$(iommu)"
    # Both need rights that a container or a user may not have.
    fact acs_bridges "$(lspci -vvv 2>/dev/null | grep -c 'ACSCtl:.*SrcValid+' | grep -v '^0$')"
    fact xids "$(dmesg 2>/dev/null | sed -n 's/.*NVRM: Xid (PCI:\([^)]*\)): \([0-9]*\).*/\2 on \1/p' | counted)"
  fi
  if [ -d /sys/class/kfd ]; then
    fact amd_gpus "$(cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id 2>/dev/null | grep -vc '^0$')"
    fact amdgpu "$(first /sys/module/amdgpu/version)"
  fi
  printf ',"gdrdrv":%s' "$([ -e /dev/gdrdrv ] && echo true || echo false)"
  printf ',"nvidia_peermem":%s' "$([ -d /sys/module/nvidia_peermem ] && echo true || echo false)"
  fact hugepages_2mi "$(first /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"
  fact hugepages_1gi "$(first /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages)"
  fact memlock_kib "$(ulimit -l 2>/dev/null)"
  fact open_files "$(ulimit -n 2>/dev/null)"
  fact processes "$(ulimit -u 2>/dev/null || ulimit -p 2>/dev/null)"
  fact stack_kib "$(ulimit -s 2>/dev/null)"
  fact shm_kib "$(df -k -P /dev/shm 2>/dev/null | { read -r line; read -r line size rest; echo "$size"; })"
  version=$(fi_info --version 2>/dev/null | grep '^libfabric:')
  fact libfabric "${version:-$(library libfabric.so.1)}"
  fact efa_installer "$(first /opt/amazon/efa_installed_packages)"
  fact nccl "$(library libnccl.so.2)"
  fact rccl "$(library librccl.so.1)"
  plugin=$(library libnccl-net.so)
  [ -n "$plugin" ] || plugin=$(library libnccl-net-ofi.so)
  if [ -n "$plugin" ]; then
    fact net_plugin "$plugin"
    fact net_plugin_version "$(grep -a -o 'aws-ofi-nccl [0-9][0-9A-Za-z.-]*' "$plugin" 2>/dev/null | head -n 1)"
  fi
  fact cards "$(cards)"
  if command -v chronyc >/dev/null 2>&1; then
    fact clock_offset "$(chronyc -n tracking 2>/dev/null | sed -n 's/^System time *: *//p')"
  elif command -v timedatectl >/dev/null 2>&1; then
    fact clock_synchronized "$(timedatectl show -p NTPSynchronized --value 2>/dev/null)"
  fi
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
# NGC images have nccl-tests that are built with MPI under names of their own.
with_mpi=$(command -v all_reduce_perf_mpi) || with_mpi=
python=$(command -v python3 || command -v python) || python=
if [ -n "$OMPI_COMM_WORLD_RANK" ] || { [ -n "$PMIX_RANK$PMI_RANK" ] && [ -z "$RANK" ]; }; then
  # Started by mpirun: nccl-tests that are built with MPI find the other ranks by themselves. On plain hosts its ranks have RANK too; srun
  # sets PMI's variables for ranks that it starts itself.
  suffix=_perf
  [ -z "$with_mpi" ] || { tests=$with_mpi suffix=_perf_mpi; }
  [ -n "$tests" ] || { echo "weftrun verify: the image has no all_reduce_perf: use one with nccl-tests built with MPI, or --launch per-rank with PyTorch" >&2; exit 3; }
  for name in $(echo "$collectives" | tr , ' '); do
    [ "${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}" = 0 ] && echo "# weftrun-verify $name"
    measured "${tests%/*}/$name$suffix" -b "$low" -e "$high" -f 2 -n "$rounds" -g 1 || exit $?
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
