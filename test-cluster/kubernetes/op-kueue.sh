#!/bin/bash
# op-kueue.sh STATE BIN HERE: Kueue with topology-aware scheduling, for every kind of job that weftrun submits
set -eu
S=$1; B=$2; HERE=$3
k() { $S/kubectl --kubeconfig $S/admin.kubeconfig "$@"; }
k apply --server-side --force-conflicts -f $B/manifests/kueue.yaml >/dev/null
$HERE/sa-kubeconfig.sh $S kueue kueue-system kueue-controller-manager
cat > $S/kueue.conf <<Y
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:28085"}
metrics: {bindAddress: "0"}
webhook: {port: 29446}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true, webhookServiceName: kueue-webhook-service, webhookSecretName: kueue-webhook-server-cert}
clientConnection: {qps: 100, burst: 200}
integrations: {frameworks: [batch/job, kubeflow.org/mpijob, kubeflow.org/pytorchjob, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob]}
Y
bash $HERE/op-hosted.sh $S kueue kueue-system kueue-webhook-server-cert kueue-webhook-service "" 29446 http://127.0.0.1:28085/readyz \
  $B/kueue --config $S/kueue.conf --feature-gates=VisibilityOnDemand=false
k apply -f $HERE/manifests/kueue.yaml >/dev/null
