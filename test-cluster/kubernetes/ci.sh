#!/bin/bash
# ci.sh build|up|test|down: the real cluster and the tests on it. `build` takes about nine minutes of two cores when nothing is
# cached, and a second when everything is; what it makes lies under the user's cache folder, outside the clone. `test` starts the
# cluster, runs everything on it, and stops it again, however the tests end.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/weftrun-ci/k8s; BIN=$CACHE/bin
STATE=${WEFTRUN_TEST_KUBE_STATE:-/tmp/weftrun-kube-$(id -u)}
# A node claims what a p5.48xlarge has, so that the pods of real jobs fit unchanged.
export NODE_FAKE=${NODE_FAKE:-cpu=192,memory=2000Gi,hugepages-2Mi=5128Mi}
NODES=${NODES:-4}; OPERATORS=${OPERATORS:-training mpi trainer${WITH_KUEUE:+ kueue}}

# Nodes are mount and process namespaces with a containerd each.
can() { [ "$(id -u)" = 0 ] && unshare --mount --pid --fork true 2>/dev/null && [ -d /sys/fs/cgroup ]; }
build() { "$HERE/install.sh"; mkdir -p "$BIN"; "$HERE/build.sh" "$BIN" ${WITH_KWOK:+kwok} ${WITH_KUEUE:+kueue}; "$HERE/render.sh" "$BIN"; }
up() { "$HERE/up.sh" "$STATE" "$BIN" "$NODES" "$OPERATORS"; }
down() { "$HERE/down.sh" "$STATE" --purge; }
logs() { for log in "$STATE"/log/*.log; do echo "-- $log"; tail -n 5 "$log"; done; }
tests() {
  cd "$ROOT"
  # With the features of the whole workspace, so that nothing is built twice.
  cargo build --workspace --bin weftrun
  cargo test --workspace --test kubeflow --no-run
  trap down EXIT
  trap 'exit 143' TERM INT
  up || { logs; return 1; }
  export WEFTRUN_TEST_KUBE_STATE=$STATE
  local run="timeout 1200 cargo test --workspace --test kubeflow --"
  # They wait for the cluster most of the time. Last and alone: what disturbs the whole of it.
  $run --skip alone_ --test-threads=6 || { logs; return 1; }
  $run alone_ --test-threads=1 || { logs; return 1; }
}
case ${1:-all} in build|up|test|all) can || { echo "skipped: a cluster of real nodes needs root, mount namespaces and cgroups"; exit 0; } ;; esac
case ${1:-all} in
  build) build ;;
  up) up ;;
  test) tests ;;
  down) down ;;
  all) build; tests ;;
  *) echo "usage: ci.sh build|up|test|down|all" >&2; exit 2 ;;
esac
