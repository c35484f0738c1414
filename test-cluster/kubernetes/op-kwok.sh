#!/bin/bash
# op-kwok.sh STATE BIN HERE [N=16]: N fake 8-GPU nodes by kwok, beside or instead of real ones; pods say
# nodeSelector type=kwok (they are tainted, so nothing else lands there)
set -eu
S=$1; B=$2; HERE=$3; N=${4:-16}; GW=10.88.0.1; mkdir -p $S/kwok-logs
k() { $S/kubectl --kubeconfig $S/admin.kubeconfig "$@"; }
k apply --server-side -f $B/manifests/kwok-crds.yaml >/dev/null
# kubectl fails at once where a definition has no status yet.
for _ in $(seq 10); do k wait --for=condition=Established crd/stages.kwok.x-k8s.io crd/logs.kwok.x-k8s.io crd/clusterlogs.kwok.x-k8s.io --timeout=30s >/dev/null 2>&1 && break; sleep 1; done
k wait --for=condition=Established crd/stages.kwok.x-k8s.io crd/logs.kwok.x-k8s.io crd/clusterlogs.kwok.x-k8s.io --timeout=30s >/dev/null
k apply --server-side -f $HERE/manifests/kwok/stages.yaml >/dev/null
k apply --server-side -f - >/dev/null <<Y
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec: {logs: [{logsFile: $S/kwok-logs/all.log, follow: true}]}
Y
[ -e $S/kwok-logs/all.log ] || : > $S/kwok-logs/all.log
( cd $S/pki; [ -s kwok.crt ] || { openssl ecparam -name prime256v1 -genkey -noout -out kwok.key; openssl req -new -key kwok.key -subj /CN=kwok -out kwok.csr 2>/dev/null; printf "subjectAltName=IP:$GW\n" > kwok.ext; openssl x509 -req -in kwok.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile kwok.ext -out kwok.crt 2>/dev/null; } )
if ! { [ -s $S/pids/kwok ] && kill -0 $(cat $S/pids/kwok) 2>/dev/null; }; then
  setsid nohup $B/kwok --kubeconfig $S/admin.kubeconfig --manage-nodes-with-label-selector type=kwok --node-ip $GW --node-port 21240 --server-address $GW:21240 \
    --tls-cert-file $S/pki/kwok.crt --tls-private-key-file $S/pki/kwok.key --node-lease-duration-seconds 40 --enable-crds=Stage,Logs,ClusterLogs >>$S/log/kwok.log 2>&1 </dev/null & echo $! > $S/pids/kwok
fi
for i in $(seq 0 $((N-1))); do r='"cpu":"192","memory":"2000Gi","ephemeral-storage":"7Ti","hugepages-2Mi":"5128Mi","nvidia.com/gpu":"8","vpc.amazonaws.com/efa":"32","rdma/rdma":"64","pods":"110"'
printf '{"apiVersion":"v1","kind":"Node","metadata":{"name":"kwok-%d","labels":{"type":"kwok","kubernetes.io/hostname":"kwok-%d","node.kubernetes.io/instance-type":"p5.48xlarge","topology.kubernetes.io/zone":"z%d"}},"spec":{"taints":[{"key":"kwok","value":"1","effect":"NoSchedule"}]},"status":{"capacity":{%s},"allocatable":{%s}}}\n' $i $i $((i%2)) "$r" "$r"; done > $S/kwok-nodes.json
k create -f $S/kwok-nodes.json >/dev/null 2>&1 || true
k wait --for=condition=Ready node -l type=kwok --timeout=60s >/dev/null
