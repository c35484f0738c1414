#!/bin/bash
# bench.sh WEFTRUN [LINES=1000000] [PODS=4]: on a running cluster (ci.sh up), the CPU that following costs, ours beside kubectl's and, where
# it is in PATH, stern's, on the same lines of as many pods, one reader after another, each on a job of its own: readers beside each other
# cost each other time. And the time from a pod's start to its first line on the screen.
# Prints a table with ratios. WEFTRUN is a release binary.
set -euo pipefail
W=$(readlink -f "$1"); LINES=${2:-1000000}; PODS=${3:-4}
S=${WEFTRUN_TEST_KUBE_STATE:-/tmp/weftrun-kube-$(id -u)}; T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
export HOME=$T KUBECONFIG=$S/researcher.kubeconfig NO_COLOR=1 TIMEFORMAT='%U %S %R'
k() { "$S/kubectl" -n research "$@"; }
base=bench-$RANDOM; each=$((LINES / PODS))
# Real training lines: a step, its loss, its speed. Printed some time after the start, so that they are followed live.
job() { cat <<J
name = "$1"
image = "busybox:1.36"
nodes = $PODS
fabric = "off"
restart = "never"
command = ["sh", "-c", "$2"]
J
}
lines="echo begin; sleep 8; yes 'step 120 tokens/sec: 43939.3 loss 2.0571 lr 3.0e-04 grad_norm 0.412' | head -n $each; sleep 5"
running() { k get pods -l training.kubeflow.org/job-name=$1 -o jsonpath='{.items[*].status.phase}' | tr ' ' '\n' | grep -c Running; }
cost() { # reader command...: user and system seconds
  local reader=$1; shift
  { time ( "$@" > "$T/$reader.out" 2> "$T/$reader.err" || true ); } 2> "$T/$reader.time"; }
for reader in weftrun kubectl stern; do
  name=$base-$reader; pods=training.kubeflow.org/job-name=$name
  [ $reader != stern ] || command -v stern >/dev/null || continue
  job $name "$lines" > "$T/job.toml"; handle=$("$W" submit -q -b kubeflow "$T/job.toml")
  until [ "$(running $name)" = "$PODS" ]; do sleep 0.2; done
  case $reader in
    weftrun) cost weftrun "$W" logs -f "$handle" ;;
    kubectl) cost kubectl "$S/kubectl" -n research logs -f --prefix -l $pods --max-log-requests 64 --tail=-1 ;;
    # It does not end by itself.
    stern) cost stern timeout -s INT 40 stern -n research -l $pods --tail=-1 --max-log-requests 64 --color never ".*" ;;
  esac
  "$W" delete -q --yes "$handle"
done
printf '%-8s %10s %12s %10s\n' reader lines 'CPU s' 'CPU s / 1M lines'
for reader in weftrun kubectl stern; do
  [ -s "$T/$reader.time" ] || continue
  lines=$(grep -c 'step 120' "$T/$reader.out" || true); read -r user sys _ < <(tail -n 1 "$T/$reader.time")
  awk -v r=$reader -v l="$lines" -v u="$user" -v s="$sys" 'BEGIN { printf "%-8s %10d %12.2f %10.2f\n", r, l, u + s, (u + s) * 1e6 / l }' | tee -a "$T/table"
done
awk '{ c[$1] = $4 } END { for (r in c) if (r != "weftrun") printf "weftrun / %s: %.2f\n", r, c["weftrun"] / c[r] }' "$T/table"
# From the event that says that a pod runs to its first line, both as they come out of one follow.
cat > "$T/first.py" <<'P'
import json, sys, time
running, first = {}, {}
for line in sys.stdin:
    now, event = time.monotonic(), json.loads(line)
    if event.get("type") == "replica" and event["replica"]["phase"] == "running":
        running.setdefault(event["replica"]["name"], now)
    if event.get("type") == "log":
        first.setdefault(event["source"], now)
late = sorted(round(1000 * (first[pod] - running[pod])) for pod in first if pod in running)
print(f"first line after the pod is said to run, ms: {late}")
P
job $base-first "echo first; sleep 5" > "$T/first.toml"
"$W" submit -q -b kubeflow --follow -o json "$T/first.toml" | tee "$T/first.json" | python3 "$T/first.py"
"$W" delete -q --yes "$(head -n 1 "$T/first.json" | python3 -c 'import json, sys; print(json.load(sys.stdin)["handle"])')"
