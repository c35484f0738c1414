#!/bin/bash
# op-mpi.sh STATE BIN HERE: the real mpi-operator as a host process under its own RBAC
set -eu
S=$1; B=$2; HERE=$3
k() { $S/kubectl --kubeconfig $S/admin.kubeconfig "$@"; }
alive() { [ -s $S/pids/$1 ] && kill -0 $(cat $S/pids/$1) 2>/dev/null; }
k apply --server-side --force-conflicts -f $B/manifests/mpi-operator.yaml >/dev/null
$HERE/sa-kubeconfig.sh $S mpi-operator mpi-operator mpi-operator
# kubectl fails at once where a definition has no status yet.
for _ in $(seq 10); do k wait --for=condition=Established crd/mpijobs.kubeflow.org --timeout=30s >/dev/null 2>&1 && break; sleep 1; done
k wait --for=condition=Established crd/mpijobs.kubeflow.org --timeout=30s >/dev/null
if ! alive mpi-operator; then
  k -n mpi-operator delete lease mpi-operator --ignore-not-found >/dev/null  # a dead leader's lease costs 15 s
  # its health port 8080 is fixed
  KUBECONFIG=$S/mpi-operator.kubeconfig setsid nohup $HERE/keep.sh $B/mpi-operator -alsologtostderr --lock-namespace=mpi-operator >>$S/log/mpi-operator.log 2>&1 </dev/null & echo $! > $S/pids/mpi-operator
fi
for i in $(seq 120); do k -n mpi-operator get lease mpi-operator >/dev/null 2>&1 && exit 0; sleep 0.25; done
echo "mpi-operator has no lease"; tail -5 $S/log/mpi-operator.log; exit 1
