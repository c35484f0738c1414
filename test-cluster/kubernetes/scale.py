#!/usr/bin/env python3
"""scale.py STATE WEFTRUN PODS [IDLE_S=30 [MEASURE…]]: what a job of PODS idle pods costs weftrun.

On a running cluster with kwok nodes (op-kwok.sh; 110 pods a node): makes a PyTorchJob that no operator touches, its pods on the kwok
nodes, and measures list, describe, why, report, and `logs -f` and `watch` for IDLE_S seconds: time, peak memory,
CPU, requests. Prints one line each; with names, only those measures.
"""
import concurrent.futures, http.client, json, os, signal, subprocess, sys, tempfile, threading, time

state, weftrun, pods = sys.argv[1], os.path.abspath(sys.argv[2]), int(sys.argv[3])
idle = int(sys.argv[4]) if len(sys.argv) > 4 else 30
kubectl = [f"{state}/kubectl", "--kubeconfig", f"{state}/admin.kubeconfig"]
namespace, name, port = f"scale-{pods}", f"idle-{pods}", 8911
proxy = subprocess.Popen(kubectl + ["proxy", f"--port={port}"], stdout=subprocess.DEVNULL)
time.sleep(1)


def call(method, path, body=None, kind="application/json", connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, json.dumps(body) if body is not None else None, {"content-type": kind})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 400 and answer.status != 409:
        sys.exit(f"{method} {path}: {answer.status} {text[:300]}")
    return json.loads(text)


container = {"name": "pytorch", "image": "fake", "env": [{"name": f"VARIABLE_{i}", "value": "x" * 60} for i in range(30)]}
labels = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": "pytorchjob-controller"}
try:
    call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    jobs = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    template = {"spec": {"containers": [container]}}
    job = call("POST", jobs, {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"weftrun.dev/submission": "0123456789abcdef0123456789abcdef"}},
        "spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
                 "pytorchReplicaSpecs": {"Worker": {"replicas": pods, "restartPolicy": "Never", "template": template}}}})
    nodes = [node["metadata"]["name"] for node in call("GET", "/api/v1/nodes?labelSelector=type%3Dkwok")["items"]]

    def make(part):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for index in part:
            role = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
            call("POST", f"/api/v1/namespaces/{namespace}/pods", {
                "metadata": {"name": f"{name}-worker-{index}", "labels": labels | role},
                "spec": {"nodeName": nodes[index % len(nodes)], "containers": [container], "restartPolicy": "Never",
                         "tolerations": [{"operator": "Exists"}]}}, connection=connection)

    if "metadata" in job and "uid" in job["metadata"]:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(make, [range(start, pods, 8) for start in range(8)]))
    running = {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "running",
               "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    call("PATCH", f"{jobs}/{name}/status", {
        "status": {"conditions": [running], "replicaStatuses": {"Worker": {"active": pods}}}}, "application/merge-patch+json")
    until = time.time() + 600
    while time.time() < until:
        query = "fieldSelector=status.phase%3DRunning&limit=1"
        listed = call("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")
        if len(listed["items"]) + listed["metadata"].get("remainingItemCount", 0) >= pods:
            break
        query = "fieldSelector=status.phase%3DRunning"
        if len(call("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]) >= pods:
            break
        time.sleep(5)
finally:
    proxy.kill()

folder = tempfile.mkdtemp()
os.makedirs(f"{folder}/.config/weftrun", exist_ok=True)
with open(f"{folder}/.config/weftrun/config.toml", "w") as config:
    config.write(f'[target.scale]\nbackend = "kubeflow"\nkubeconfig = "{state}/admin.kubeconfig"\nnamespace = "{namespace}"\n')
environment = {"HOME": folder, "PATH": os.environ["PATH"], "NO_COLOR": "1"}
handle = f"kubeflow://scale/{namespace}/pytorchjob/{name}"


def measure(what, arguments, seconds=None):
    if sys.argv[5:] and what not in sys.argv[5:]:
        return
    log = open(f"{folder}/{what}.log", "w+")
    began = time.time()
    child = subprocess.Popen([weftrun, "-vv", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=log)
    late, peak = None, [0]

    def sample():
        # What wait4 gives counts this program too, which the child was before it was weftrun.
        while child.returncode is None:
            try:
                text = open(f"/proc/{child.pid}/status").read()
                peak[0] = max(peak[0], int(text.split("VmHWM:")[1].split()[0]) if "weftrun" in text else 0)
            except (OSError, IndexError):
                pass
            time.sleep(0.01)

    threading.Thread(target=sample, daemon=True).start()
    if seconds:
        # The start is not counted: from when nothing new is opened.
        time.sleep(seconds)
        used = open(f"/proc/{child.pid}/stat").read().rsplit(")", 1)[1].split()
        before = (int(used[11]) + int(used[12]), os.path.getsize(log.name), time.time())
        time.sleep(seconds)
        used = open(f"/proc/{child.pid}/stat").read().rsplit(")", 1)[1].split()
        ticks, took = int(used[11]) + int(used[12]) - before[0], time.time() - before[2]
        with open(log.name, errors="replace") as text:
            text.seek(before[1])
            sent = text.read().count("requesting")
        late = f"idle: {sent / took:.1f} requests/s, {ticks / took:.1f} % of a core"
        child.send_signal(signal.SIGINT)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    whole = open(log.name, errors="replace").read()
    requests = whole.count("requesting")
    took = time.time() - began
    print(f"{pods} pods, {what}: {took:.1f} s, {peak[0] / 1024:.0f} MiB, {usage.ru_utime + usage.ru_stime:.1f} s CPU, "
          f"{requests} requests{', ' + late if late else ''}, exit {child.returncode}", flush=True)
    if os.environ.get("KEEP_LOGS"):
        print(log.name)


measure("nothing (backends)", ["backends"])
measure("list", ["list", "-b", "scale"])
measure("describe", ["describe", handle])
measure("describe -o wide", ["describe", "-o", "wide", handle])
measure("why", ["why", handle])
measure("report", ["report", "-o", "json", handle])
measure("watch", ["watch", handle], idle)
measure("logs -f", ["logs", "-f", handle], idle)
