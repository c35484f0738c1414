# nodes.sh: sourced by up.sh; which nodes there are. The partitions are those of the AWS ParallelCluster reference site
# (compute-gpu: p4de.24xlarge and trn1.32xlarge; inference-gpu: g5.12xlarge, which has one EFA and no RDMA), plus p5.48xlarge.
# Columns: partition, short type, count, CPUs, sockets, cores a socket, MiB, GRES (- for none), features, last octet of the first address
NODE_TABLE="
compute-gpu   p4de ${CLUSTER_P4DE:-4} 96  2 24 1152000 gpu:a100:8 static,p4de.24xlarge,p4de,efa,gpu 11
compute-gpu   trn1 ${CLUSTER_TRN1:-1} 128 2 32 512000  -          static,trn1.32xlarge,trn1,efa     51
compute-p5    p5   ${CLUSTER_P5:-2}   192 2 48 2000000 gpu:h100:8 static,p5.48xlarge,p5,efa,gpu     71
inference-gpu g5   ${CLUSTER_G5:-1}   48  1 24 192000  gpu:a10g:4 static,g5.12xlarge,g5,efa,gpu     101
"
NODES=(); declare -A IP PARTITION_NODES=(); NODE_LINES=; GRES_LINES=; PARTITION_LINES=
while read -r partition type count cpus sockets cores mib gres features octet; do
  [ -n "$partition" ] && [ "$count" -gt 0 ] || continue
  range=$partition-st-$type-[1-$count]
  for ((i = 1; i <= count; i++)); do n=$partition-st-$type-$i; NODES+=("$n"); IP[$n]=$SUBNET.$((octet + i - 1)); done
  PARTITION_NODES[$partition]+=${PARTITION_NODES[$partition]:+,}$range
  ask=; if [ "$gres" != - ]; then ask=" Gres=$gres"; IFS=: read -r name model devices <<< "$gres"
    GRES_LINES+="NodeName=$range Name=$name Type=$model File=$D/dev/nvidia[0-$((devices - 1))]"$'\n'; fi
  NODE_LINES+="NodeName=$range CPUs=$cpus Boards=1 SocketsPerBoard=$sockets CoresPerSocket=$cores ThreadsPerCore=2 RealMemory=$mib$ask Feature=$features State=UNKNOWN"$'\n'
done <<< "$NODE_TABLE"
for partition in compute-gpu compute-p5 inference-gpu; do
  [ -n "${PARTITION_NODES[$partition]:-}" ] || continue
  case $partition in compute-gpu) rest='Default=YES MaxTime=2-00:00:00' ;; inference-gpu) rest='MaxTime=12:00:00 MaxNodes=1' ;; *) rest='MaxTime=2-00:00:00' ;; esac
  PARTITION_LINES+="PartitionName=$partition Nodes=${PARTITION_NODES[$partition]} $rest DefaultTime=1:00:00 State=UP"$'\n'; done
