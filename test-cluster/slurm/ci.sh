#!/bin/bash
# ci.sh - stand the Slurm bed up, run the backend's tests on it over local commands and over ssh, take it down. Under five minutes.
# Needs root and Debian; installs the packages where they are missing. BED_DIR, if set, is where the bed is made (a short path).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" != 0 ]; then echo "ci.sh: skipped: the Slurm bed needs root (namespaces)"; exit 0; fi
"$HERE/install.sh"
# A bed of its own: number, ports and folder are not those of a bed that somebody works with.
export BED_ID=${BED_ID:-7} BED_PYXIS=${BED_PYXIS:-auto}
DIR=${BED_DIR:-/opt/weftrun-ci-bed}
cd "$HERE/../.."
SUITE=(cargo test -p weftrun-backends --no-default-features --features slurm --test slurm_bed)
"${SUITE[@]}" --no-run   # building is not part of the five minutes
trap '"$HERE/down.sh" "$DIR" --wipe' EXIT
"$HERE/up.sh" "$DIR"
WEFTRUN_TEST_SLURM=$DIR timeout 290 "${SUITE[@]}" -- --nocapture --test-threads 3
