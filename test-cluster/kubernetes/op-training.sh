#!/bin/bash
# op-training.sh STATE BIN HERE: the real training-operator as a host process, under its own RBAC, webhooks on
set -eu
S=$1; B=$2; HERE=$3
$S/kubectl --kubeconfig $S/admin.kubeconfig apply --server-side --force-conflicts -f $B/manifests/training-operator.yaml >/dev/null
$HERE/sa-kubeconfig.sh $S training-operator kubeflow training-operator
# the stock template, with nslookup by path: busybox's shell would run its own applet, whose exit status
# is 1 as soon as one search domain says NXDOMAIN
cat > $S/init-pytorch.yaml <<'Y'
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources: {limits: {cpu: 100m, memory: 20Mi}, requests: {cpu: 50m, memory: 10Mi}}
  command: ['sh', '-c', 'err=1;for i in $(seq {{.MaxTries}}); do if /bin/nslookup {{.MasterAddr}}; then err=0 && break; fi;echo waiting for master; sleep 1; done; exit $err']
Y
exec $HERE/op-hosted.sh $S training-operator kubeflow training-operator-webhook-cert training-operator webhook-server 29443 http://127.0.0.1:28081/readyz \
  $B/training-operator --enable-scheme=pytorchjob --enable-scheme=jaxjob --enable-scheme=tfjob --enable-scheme=xgboostjob --enable-scheme=paddlejob \
  --metrics-bind-address=127.0.0.1:28080 --health-probe-bind-address=127.0.0.1:28081 --webhook-server-port=29443 --pytorch-init-container-template-file=$S/init-pytorch.yaml --zap-log-level=info
