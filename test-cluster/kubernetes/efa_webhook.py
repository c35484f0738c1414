"""efa_webhook.py CERT KEY: a mutating webhook that adds EFA to pods as NVIDIA describes it for DGX Cloud Create on AWS
("Auto-Mounted EFA", https://docs.nvidia.com/dgx-cloud/create/latest/cluster-user-guide/aws.html, read 2026-11).

It looks at each pod alone: workers of distributed jobs that ask a whole node, and every launcher, since it cannot know what a
launcher's workers ask. A pod with `disable-auto-efa: "true"` is left alone. It looks for nothing that is there already.
A pod with the annotation `refuse: "true"` is refused.
It prints the port of 127.0.0.1 that it listens on."""
import base64
import http.server
import json
import ssl
import sys

STACK = "/opt/amazon-efa-ofi"
LIBRARIES = f"{STACK}/ofi/lib:{STACK}/efa/lib:{STACK}/openmpi/lib"
KEYS = ("training.kubeflow.org/job-name", "training.kubeflow.org/job-role", "training.kubeflow.org/replica-type")


def change(pod):
    meta = pod["metadata"]
    labels = meta.get("labels", {})
    if meta.get("annotations", {}).get("disable-auto-efa") == "true" or KEYS[0] not in labels:
        return []
    container = pod["spec"]["containers"][0]
    limits = container.setdefault("resources", {}).setdefault("limits", {})
    launcher = "launcher" in (labels.get(KEYS[1]), labels.get(KEYS[2]))
    if not launcher and limits.get("nvidia.com/gpu") != "8":
        return []
    added = {"vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5Gi"}
    limits.update(added)
    container["resources"].setdefault("requests", {}).update(added)
    container.setdefault("volumeMounts", []).append({"name": "auto-efa", "mountPath": STACK, "readOnly": True})
    pod["spec"].setdefault("volumes", []).append({"name": "auto-efa", "hostPath": {"path": STACK}})
    env = container.setdefault("env", [])
    own = [entry for entry in env if entry["name"] == "LD_LIBRARY_PATH"]
    if own:
        own[0]["value"] = f"{LIBRARIES}:{own[0].get('value', '')}"
    else:
        env.append({"name": "LD_LIBRARY_PATH", "value": LIBRARIES})
    for name, value in (("OPAL_PREFIX", f"{STACK}/openmpi"), ("NVIDIA_GDRCOPY", "enabled"), ("FI_EFA_USE_DEVICE_RDMA", "1")):
        if all(entry["name"] != name for entry in env):
            env.append({"name": name, "value": value})
    return [{"op": "replace", "path": "/spec", "value": pod["spec"]}]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        response = {"uid": request["uid"], "allowed": True}
        if request["object"]["metadata"].get("annotations", {}).get("refuse") == "true":
            response |= {"allowed": False, "status": {"code": 403, "message": "this pod is not wanted here"}}
        patch = change(request["object"]) if response["allowed"] else None
        if patch:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
