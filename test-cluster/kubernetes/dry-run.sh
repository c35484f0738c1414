#!/bin/bash
# dry-run.sh WEFTRUN: a real API server with the CRDs of JobSet, LeaderWorkerSet, KubeRay, Volcano and the Kubeflow operators takes what
# `weftrun mutate` makes of each object in workloads/ with each profile, as a strict dry run. It needs what `ci.sh build` makes, and runs
# beside a cluster: its ports are its own. About a minute and a half.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
W=$1; B=${XDG_CACHE_HOME:-$HOME/.cache}/weftrun-ci/k8s/bin
S=$(mktemp -d); API=36443; ETCD=33379
trap 'kill $(cat "$S"/*.pid 2>/dev/null) 2>/dev/null || true; rm -rf "$S"' EXIT
mkdir "$S/pki" "$S/crds"; ln -s "$B/kube-all" "$S/kube-apiserver"; ln -s "$B/kube-all" "$S/kubectl"
openssl genrsa -out "$S/pki/sa.key" 2048 2>/dev/null; TOKEN=$(openssl rand -hex 16)
echo "$TOKEN,admin,1,\"system:masters\"" > "$S/tokens"
"$B/etcd" --data-dir "$S/etcd" --listen-client-urls http://127.0.0.1:$ETCD --advertise-client-urls http://127.0.0.1:$ETCD \
  --listen-peer-urls http://127.0.0.1:$((ETCD + 1)) > "$S/etcd.log" 2>&1 & echo $! > "$S/etcd.pid"
"$S/kube-apiserver" --etcd-servers=http://127.0.0.1:$ETCD --secure-port=$API --bind-address=127.0.0.1 --cert-dir="$S/pki" \
  --service-account-issuer=https://kubernetes --service-account-key-file="$S/pki/sa.key" --service-account-signing-key-file="$S/pki/sa.key" \
  --token-auth-file="$S/tokens" --service-cluster-ip-range=10.97.0.0/16 --disable-admission-plugins=ServiceAccount > "$S/api.log" 2>&1 & echo $! > "$S/api.pid"
k() { "$S/kubectl" --server https://127.0.0.1:$API --insecure-skip-tls-verify --token "$TOKEN" "$@"; }
for _ in $(seq 240); do k get --raw /readyz > /dev/null 2>&1 && break; sleep 0.25; done

# The CRDs come out of the Go modules. Volcano 1.10 is the newest that is there; its pods have no claim by template yet.
module() { (cd "$S" && go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); }
k apply --server-side -f "$(module sigs.k8s.io/lws@v0.8.0)/config/crd/bases" -f "$(module github.com/ray-project/kuberay/ray-operator@v1.4.2)/config/crd/bases" \
  -f "$(module volcano.sh/volcano@v1.10.0)/config/crd/volcano/bases" > /dev/null
# Their webhooks are not here to convert versions.
for crds in jobset trainer training-operator; do
  awk 'BEGIN { RS = "\n---\n" } /\nkind: CustomResourceDefinition/ { print "---"; print }' "$B/manifests/$crds.yaml" | awk '/^(  )?[a-z]/ { skip = /^  conversion:/ } !skip' > "$S/crds/$crds.yaml"
done
k apply --server-side -f "$S/crds" -f "$HERE/workloads/crds/computedomain.yaml" > /dev/null
# kubectl fails at once where a definition has no status yet.
for _ in $(seq 10); do k wait --for=condition=Established crd --all --timeout=60s >/dev/null 2>&1 && break; sleep 1; done
k wait --for=condition=Established crd --all --timeout=60s > /dev/null

printf '[profile.queued]\nextends = "gke-tcpxo"\n[profile.queued.queue]\nkueue = "gpus"\nvolcano = "ml"\ntopology-required = "rack"\n' > "$S/site.toml"
accepted=0 refused=0 kept=0
for profile in queued $("$W" profiles -o json | grep -o '"name": *"[a-z0-9-]*"' | cut -d'"' -f4); do
  for file in "$HERE"/workloads/*.yaml; do
    what="$profile $(basename "$file" .yaml)"
    case $profile in gke-a4x*|eks-gb*) gpus=4 ;; *) gpus=8 ;; esac
    if ! sed "s#gpu: 8#gpu: $gpus#" "$file" | "$W" --config "$S/site.toml" mutate --profile "$profile" --trainer-version 2.1 --runtime "$HERE/workloads/runtimes/torch-distributed.yaml" > "$S/out.yaml" 2> "$S/err"; then
      echo "$what: $(cat "$S/err")"; refused=$((refused + 1))
    elif [[ $what == *" volcano" ]] && grep -q resourceClaimTemplateName "$S/out.yaml"; then
      kept=$((kept + 1))
    elif answer=$(k apply --server-side --dry-run=server --validate=strict -f "$S/out.yaml" 2>&1); then
      accepted=$((accepted + 1))
    else
      echo "$what: $answer"; refused=$((refused + 1))
    fi
  done
done
echo "$accepted accepted, $kept not tried, $refused refused"
[ "$refused" = 0 ] && [ "$accepted" -gt 0 ]
