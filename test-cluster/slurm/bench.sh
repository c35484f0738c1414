#!/bin/bash
# bench.sh [cargo options] - the speed of submitting and listing beside Slurm itself and submitit, on a bed of its own. Needs
# root; `--profile dev` builds quicker, and differs little: what is measured are processes and connections.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$HERE/../install.sh" "$HERE/packages"
DIR=${BED_DIR:-/opt/weftrun-bench-bed}
cd "$HERE/../.."
cargo bench --workspace --bench slurm --no-run "$@"
trap '"$HERE/down.sh" "$DIR" --wipe' EXIT
BED_ID=${BED_ID:-9} BED_JOB_SUBMIT=none BED_PYXIS=none "$HERE/up.sh" "$DIR"
python3 -m venv "$DIR/venv"
"$DIR/venv/bin/pip" install -q submitit
WEFTRUN_TEST_SLURM=$DIR WEFTRUN_SUBMITIT=$DIR/venv/bin/python cargo bench --workspace --bench slurm "$@"
