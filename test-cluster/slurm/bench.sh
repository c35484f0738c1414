#!/bin/bash
# bench.sh [cargo options] - the speed of submitting and listing beside Slurm itself and submitit, on a cluster of its own. Needs
# root; `--profile dev` builds quicker, and differs little: what is measured are processes and connections.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$HERE/../install.sh" "$HERE/packages"
DIR=${CLUSTER_DIR:-/opt/weftrun-bench-cluster}
cd "$HERE/../.."
cargo bench --workspace --bench slurm --no-run "$@"
trap '"$HERE/down.sh" "$DIR" --wipe' EXIT
CLUSTER_ID=${CLUSTER_ID:-9} CLUSTER_JOB_SUBMIT=none CLUSTER_PYXIS=none "$HERE/up.sh" "$DIR"
python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q submitit
WEFTRUN_TEST_SLURM=$DIR WEFTRUN_SUBMITIT=$DIR/venv/bin/python cargo bench --workspace --bench slurm "$@"
