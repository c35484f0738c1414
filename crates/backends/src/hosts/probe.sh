# Prints the facts of a host as `key value` lines. Reads files of the kernel only, starts few programs, and is bounded.
one() { one=; { read -r one < "$1"; } 2> /dev/null || :; }
printf 'cpus %s\n' "$(grep -c '^processor' /proc/cpuinfo)"
while read -r key value _; do [ "$key" != MemTotal: ] || printf 'memory %s\n' "$value"; done < /proc/meminfo
gpus=0; for f in /dev/nvidia[0-9] /dev/nvidia[0-9][0-9]; do [ ! -e "$f" ] || gpus=$((gpus + 1)); done
# Those of AMD are not counted.
[ "$gpus" = 0 ] && [ -e /dev/kfd ] || printf 'gpus %s\n' "$gpus"
for f in /proc/driver/nvidia/gpus/*/information; do
  [ -r "$f" ] || continue
  sed -n 's/^Model:[[:space:]]*/gpu /p' "$f"; break
done
for p in torchrun mpirun docker podman apptainer python3 git; do command -v "$p" > /dev/null && printf 'program %s\n' "$p"; done
classes=${WEFTRUN_PROBE_SYSFS:-/sys/class}
for dev in "$classes"/infiniband/*; do
  [ -d "$dev" ] || continue
  driver=$(readlink "$dev/device/driver" 2> /dev/null); driver=${driver##*/}
  one "$dev/node_type"; type=$one
  one "$dev/device/numa_node"; numa=$one; [ "$numa" != -1 ] || numa=
  # ats_enabled is not in sysfs; the extended capability is, for root and for those who may read all of the configuration space.
  ats=; pci=$(readlink -f "$dev/device" 2> /dev/null); pci=${pci##*/}
  if command -v lspci > /dev/null; then
    case $(lspci -vvv -s "$pci" 2> /dev/null | grep ATSCtl) in *Enable+*) ats=enabled ;; *Enable-*) ats=disabled ;; esac
  fi
  for port in "$dev"/ports/*; do
    [ -d "$port" ] || continue
    one "$port/link_layer"; link=$one; one "$port/state"; state=$one; one "$port/rate"; rate=$one
    gid=
    # The index of RoCE v2 over IPv4: the GID of an IPv4 address ends in ffff:AABB:CCDD.
    for t in "$port"/gid_attrs/types/*; do
      one "$t"; [ "$one" = "RoCE v2" ] || continue
      i=${t##*/}; one "$port/gids/$i"
      case $one in 0000:0000:0000:0000:0000:ffff:*) if [ -z "$gid" ] || [ "$i" -lt "$gid" ]; then gid=$i; fi ;; esac
    done
    printf 'nic infiniband|%s:%s|%s|%s|%s|%s|%s|%s|%s|%s\n' "${dev##*/}" "${port##*/}" "$driver" "$type" "$link" "$state" "$rate" "$numa" "$ats" "$gid"
  done
  [ "$ats" != disabled ] || printf 'note HOSTS-ATS %s has ATS disabled: GPUDirect RDMA of a virtual machine goes through the IOMMU (mlxconfig -d DEVICE set ATS_ENABLED=true)\n' "${dev##*/}"
done
for dev in "$classes"/cxi/*; do [ ! -d "$dev" ] || printf 'nic cxi|%s||||||||\n' "${dev##*/}"; done
limit=$(ulimit -H -l)
case $limit in unlimited) ;; *) [ ! -d /dev/infiniband ] || printf 'note HOSTS-MEMLOCK locked memory is limited to %s KiB: RDMA needs it unlimited (/etc/security/limits.d)\n' "$limit" ;; esac
if [ -d /dev/infiniband ] && ! [ -w /dev/infiniband/uverbs0 ]; then printf 'note HOSTS-VERBS /dev/infiniband/uverbs0 cannot be opened by this user\n'; fi
if [ "$gpus" -gt 0 ] && [ -d /sys/class/infiniband ] && ! [ -d /sys/module/nvidia_peermem ] && ! [ -d /sys/module/nv_peer_mem ]; then
  printf 'note HOSTS-PEERMEM neither nvidia_peermem nor nv_peer_mem is loaded: no GPUDirect RDMA without DMA-BUF\n'
fi
if command -v lspci > /dev/null && [ "$gpus" -gt 0 ] && lspci -vvv 2> /dev/null | grep ACSCtl | grep -q 'SrcValid+'; then
  printf 'note HOSTS-ACS a PCIe switch or port has ACS source validation on: traffic between GPU and NIC goes through the root complex\n'
fi
grep -qs '^[[:space:]]*KillUserProcesses=yes' /etc/systemd/logind.conf && printf 'note HOSTS-LINGER logind ends the processes of a user who has logged out (KillUserProcesses=yes): run loginctl enable-linger\n'
:
