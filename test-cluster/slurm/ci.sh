#!/bin/bash
# ci.sh - stand the Slurm clusters up, run the tests of the backend and of the command line on them, over local commands and
# over ssh, and over slurmrestd, and take them down. Four minutes on two cores that did other things as well. Needs root and Debian; installs the packages where they are missing.
# CLUSTER_DIR, if set, is where the clusters are made (a short path).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" != 0 ]; then echo "ci.sh: skipped: the Slurm cluster needs root (namespaces)"; exit 0; fi
"$HERE/../install.sh" "$HERE/packages"
# Clusters of their own: numbers, ports and folders are not those of a cluster that somebody works with.
ID=${CLUSTER_ID:-7} DIR=${CLUSTER_DIR:-/opt/weftrun-ci-cluster}
cd "$HERE/../.."
# The workspace's own set of features: what `cargo test --workspace` built is used as it is.
SUITE=(cargo test --workspace --no-fail-fast --test slurm_cluster)
"${SUITE[@]}" --no-run   # building is not part of the five minutes
trap '"$HERE/down.sh" "$DIR" --wipe; "$HERE/down.sh" "$DIR-bare" --wipe' EXIT
CLUSTER_ID=$ID "$HERE/up.sh" "$DIR"
# The second one is taken apart by the tests: no accounting, jobs are forgotten at once, a file system that fills up.
CLUSTER_ID=$((ID + 1)) CLUSTER_ACCOUNTING=none CLUSTER_MINJOBAGE=2 CLUSTER_SMALL=64k CLUSTER_PYXIS=none CLUSTER_P4DE=2 CLUSTER_TRN1=0 CLUSTER_P5=0 CLUSTER_G5=0 \
  "$HERE/up.sh" "$DIR-bare"
WEFTRUN_TEST_SLURM=$DIR WEFTRUN_TEST_SLURM_BARE=$DIR-bare timeout 1000 "${SUITE[@]}" -- --nocapture --test-threads 4
