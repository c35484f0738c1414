#!/bin/bash
# ci.sh build|up|test|down: the real cluster and the tests on it. `build` takes about nine minutes of two cores when nothing is
# cached, and a second when everything is; what it makes lies under the user's cache folder, outside the clone.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/weftrun-ci/k8s; BIN=$CACHE/bin
STATE=${WEFTRUN_TEST_KUBE_STATE:-/tmp/weftrun-kube-$(id -u)}
# A node claims what a p5.48xlarge has, so that the pods of real jobs fit unchanged.
export NODE_FAKE=${NODE_FAKE:-cpu=192,memory=2000Gi,hugepages-2Mi=5128Mi}
NODES=${NODES:-4}; OPERATORS=${OPERATORS:-training mpi trainer}

build() { "$HERE/install.sh"; mkdir -p "$BIN"; "$HERE/build.sh" "$BIN" ${WITH_KWOK:+kwok}; "$HERE/render.sh" "$BIN"; }
up() { "$HERE/up.sh" "$STATE" "$BIN" "$NODES" "$OPERATORS"; }
down() { "$HERE/down.sh" "$STATE" --purge; }
tests() {
  trap down EXIT
  up
  export WEFTRUN_TEST_KUBE_STATE=$STATE
  cd "$ROOT"
  local run="cargo test -p weftrun-backends --test kubeflow --"
  $run --test-threads=2 --nocapture
  # Last and alone: what disturbs the whole cluster.
  WEFTRUN_TEST_KUBE_UP="NODE_FAKE='$NODE_FAKE' '$HERE/up.sh' '$STATE' '$BIN' $NODES '$OPERATORS'" \
    $run --nocapture the_api_server_dies
}
case ${1:-all} in
  build) build ;;
  up) up ;;
  test) tests ;;
  down) down ;;
  all) build; tests ;;
  *) echo "usage: ci.sh build|up|test|down|all" >&2; exit 2 ;;
esac
