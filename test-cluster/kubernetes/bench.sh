#!/bin/bash
# bench.sh WEFTRUN [LINES=1000000] [PODS=4]: on a running cluster (ci.sh up), the CPU that following costs, ours beside kubectl's and, where
# it is in PATH, stern's, on the same lines of the same pods; and the time from a pod's start to its first line on the screen.
# Prints a table with ratios. WEFTRUN is a release binary.
set -euo pipefail
W=$(readlink -f "$1"); LINES=${2:-1000000}; PODS=${3:-4}
S=${WEFTRUN_TEST_KUBE_STATE:-/tmp/weftrun-kube-$(id -u)}; T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
export HOME=$T KUBECONFIG=$S/researcher.kubeconfig NO_COLOR=1 TIMEFORMAT='%U %S %R'
k() { "$S/kubectl" -n research "$@"; }
name=bench-$RANDOM; each=$((LINES / PODS))
# Real training lines: a step, its loss, its speed. Printed when a file appears, so that all readers follow them live.
cat > "$T/job.toml" <<J
name = "$name"
image = "busybox:1.36"
nodes = $PODS
fabric = "off"
restart = "never"
command = ["sh", "-c", "echo begin; sleep 20; yes 'step 120 tokens/sec: 43939.3 loss 2.0571 lr 3.0e-04 grad_norm 0.412' | head -n $each; sleep 5"]
J
handle=$("$W" submit -q -b kubeflow "$T/job.toml")
until [ "$(k get pods -l training.kubeflow.org/job-name=$name -o jsonpath='{.items[*].status.phase}' | tr ' ' '\n' | grep -c Running)" = "$PODS" ]; do sleep 0.2; done
cost() { # name command...: user and system seconds, most memory, lines read
  local name=$1; shift
  { time ( "$@" > "$T/$name.out" 2> "$T/$name.err" || true ); } 2> "$T/$name.time" & }
cost weftrun "$W" logs -f "$handle"
cost kubectl "$S/kubectl" -n research logs -f --prefix -l training.kubeflow.org/job-name=$name --max-log-requests 64 --tail=-1
command -v stern >/dev/null && cost stern stern -n research -l training.kubeflow.org/job-name=$name --tail=-1 --max-log-requests 64 --color never ".*"
wait %2 %3 2>/dev/null || wait
[ ! -e "$T/stern.time" ] || { sleep 2; kill %4 2>/dev/null || true; wait; }
printf '%-8s %10s %12s %10s\n' reader lines 'CPU s' 'CPU s / 1M lines'
for reader in weftrun kubectl stern; do
  [ -s "$T/$reader.time" ] || continue
  lines=$(grep -c 'step 120' "$T/$reader.out" || true); read -r user sys _ < <(tail -n 1 "$T/$reader.time")
  awk -v r=$reader -v l="$lines" -v u="$user" -v s="$sys" 'BEGIN { printf "%-8s %10d %12.2f %10.2f\n", r, l, u + s, (u + s) * 1e6 / l }' | tee -a "$T/table"
done
awk '{ c[$1] = $4 } END { for (r in c) if (r != "weftrun") printf "weftrun / %s: %.2f\n", r, c["weftrun"] / c[r] }' "$T/table"
"$W" delete -q --yes "$handle"
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
sed -e "s/^name = .*/name = \"$name-first\"/" -e 's/^command = .*/command = ["sh", "-c", "echo first; sleep 5"]/' "$T/job.toml" > "$T/first.toml"
"$W" submit -q -b kubeflow --follow -o json "$T/first.toml" | tee "$T/first.json" | python3 "$T/first.py"
"$W" delete -q --yes "$(head -n 1 "$T/first.json" | python3 -c 'import json, sys; print(json.load(sys.stdin)["handle"])')"
