#!/bin/bash
# How long weftrun takes to start, beside kubectl and Python in one hyperfine run. Needs a release build and hyperfine
# (apt-get install hyperfine); peers that are not here are left out, and that is said.
#   crates/cli/benches/start.sh [weftrun]
set -euo pipefail
cd "$(dirname "$0")/../../.."
weftrun=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/weftrun}")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export HOME=$work; cd "$work"
cat > job.toml <<'TOML'
name = "llama-8b"
image = "nvcr.io/nvidia/pytorch:25.09-py3"
launch = "torchrun"
nodes = 4
gpus_per_node = 8
instance_type = "p5.48xlarge"
memory = "1800Gi"
command = ["train.py", "--epochs", "3"]
profile = "dgxc"
fabric = "efa"
TOML
runs=(-n "weftrun --version" "$weftrun --version" -n "weftrun plan job.toml" "$weftrun plan job.toml")
if command -v kubectl >/dev/null; then runs+=(-n "kubectl version --client" "kubectl version --client")
else echo "kubectl is not here"; fi
# What a Python command line pays before it has done anything, and nothing but the standard library.
if command -v python3 >/dev/null; then
  python=$(python3 -c 'import sys; print(sys.executable)')
  runs+=(-n "python3, standard library only" "$python -c 'import argparse, json, subprocess, tomllib; tomllib.load(open(\"job.toml\", \"rb\"))'")
fi
hyperfine -N --warmup 5 --runs "${RUNS:-60}" --export-json result.json "${runs[@]}"
if command -v jq >/dev/null; then
  jq -r '.results[] | "\(.command): median \(.median * 10000 | round / 10) ms, min \(.min * 10000 | round / 10) ms"' result.json
fi
