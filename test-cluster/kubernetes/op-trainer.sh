#!/bin/bash
# op-trainer.sh STATE BIN HERE: JobSet and Kubeflow Trainer v2
set -eu
S=$1; B=$2; HERE=$3
k() { $S/kubectl --kubeconfig $S/admin.kubeconfig "$@"; }
k apply --server-side --force-conflicts -f $B/manifests/jobset.yaml -f $B/manifests/trainer.yaml >/dev/null
$HERE/sa-kubeconfig.sh $S jobset jobset-system jobset-controller-manager; $HERE/sa-kubeconfig.sh $S trainer kubeflow-system kubeflow-trainer-controller-manager
cat > $S/jobset.conf <<Y
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true, webhookServiceName: jobset-webhook-service, webhookSecretName: jobset-webhook-server-cert}
webhook: {port: 29444}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "127.0.0.1:28083"}
Y
cat > $S/trainer.conf <<Y
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:28084", readinessEndpointName: readyz, livenessEndpointName: healthz}
metrics: {bindAddress: "0", secureServing: false}
webhook: {port: 29445, host: ""}
leaderElection: {leaderElect: false}
certManagement: {enable: true, webhookServiceName: kubeflow-trainer-controller-manager, webhookSecretName: kubeflow-trainer-webhook-cert}
clientConnection: {qps: 50, burst: 100}
Y
bash $HERE/op-hosted.sh $S jobset jobset-system jobset-webhook-server-cert jobset-webhook-service "" 29444 http://127.0.0.1:28083/readyz $B/jobset-controller --config $S/jobset.conf
bash $HERE/op-hosted.sh $S trainer kubeflow-system kubeflow-trainer-webhook-cert kubeflow-trainer-controller-manager webhook-server 29445 http://127.0.0.1:28084/readyz $B/trainer-controller-manager --config $S/trainer.conf
# the runtimes are validated by the webhook, so they come last
k apply --server-side -f $HERE/manifests/runtimes.yaml >/dev/null
