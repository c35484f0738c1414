#!/bin/bash
# ci.sh - bring four plain hosts up, run the backend's tests on them over real sshds with real Open MPI, docker and podman, and take them down. Six minutes.
# Needs root and Debian; installs the packages where they are missing. CLUSTER_DIR, if set, is where the cluster is made (a short path).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" != 0 ]; then echo "ci.sh: skipped: the cluster needs root (namespaces)"; exit 0; fi
"$HERE/../install.sh" "$HERE/packages"
DIR=${CLUSTER_DIR:-/opt/weftrun-ci-hosts}
cd "$HERE/../.."
# The workspace's own set of features: what `cargo test --workspace` built is used as it is.
SUITE=(cargo test --workspace --no-fail-fast --test hosts_cluster)
"${SUITE[@]}" --no-run   # building is not part of the minutes
trap '"$HERE/down.sh" "$DIR" --wipe' EXIT
CLUSTER_ID=${CLUSTER_ID:-7} "$HERE/up.sh" "$DIR"
WEFTRUN_TEST_HOSTS=$DIR timeout 900 "${SUITE[@]}" -- --nocapture
