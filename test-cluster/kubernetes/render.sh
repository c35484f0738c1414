#!/bin/bash
# render.sh BIN: the operators' own manifests out of the Go modules they were built from, into BIN/manifests. The Deployments are
# dropped and the Services lose their selectors, since the operators run as processes of the host (op-hosted.sh).
set -eu
B=$(cd "$1" && pwd); HERE=$(cd "$(dirname "$0")" && pwd); O=$B/manifests; mkdir -p "$O"
stamp=$(ls "$B/kueue" 2>/dev/null; cat "$HERE"/{harness,operators,kwok,kueue}/go.mod "$HERE"/render.sh "$HERE"/hosted.py | sha256sum | cut -c1-16)
[ "$(cat "$O/.stamp" 2>/dev/null)" = "$stamp" ] && exit 0
W=$(mktemp -d); trap 'chmod -R u+w "$W"; rm -rf "$W"' EXIT
ln -s "$B/kube-all" "$W/kubectl"
module() { (cd "$HERE/$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2"); }
# A copy, since the module cache is read-only and one overlay reaches for the network.
overlay() { # name module-folder module path
  cp -r "$(module "$2" "$3")/." "$W/$1.src"; chmod -R u+w "$W/$1.src"
  sed -i -E '/third-party\/jobset|github\.com\/kubernetes-sigs\/jobset/d' "$W/$1.src/$4"/kustomization.yaml
  "$W/kubectl" kustomize "$W/$1.src/$4" | python3 "$HERE/hosted.py" > "$O/$1.yaml"; }
overlay training-operator operators github.com/kubeflow/training-operator manifests/overlays/standalone
overlay mpi-operator operators github.com/kubeflow/mpi-operator manifests/overlays/standalone
overlay jobset harness sigs.k8s.io/jobset config/default
overlay trainer harness github.com/kubeflow/trainer/v2 manifests/overlays/manager
[ ! -x "$B/kueue" ] || overlay kueue kueue sigs.k8s.io/kueue config/default
K=$(module kwok sigs.k8s.io/kwok)/kustomize/crd/bases
for crd in stages logs clusterlogs; do cat "$K/kwok.x-k8s.io_$crd.yaml"; done > "$O/kwok-crds.yaml"
echo "$stamp" > "$O/.stamp"
