"""Filter for `kubectl kustomize`: what an operator needs in the cluster when it runs outside of it.

Drops Deployments, APIServices, the selectors of Services (an EndpointSlice points at the host instead), and training-operator's MPIJob v1
CRD, which has the same name as mpi-operator's v2beta1, so that only one of them can be in a cluster. Text only: a fresh
machine has no YAML library."""
import re
import sys

documents = re.split(r"(?m)^---\n", sys.stdin.read())
kept = []
for text in documents:
    kind = re.search(r"(?m)^kind: (\S+)", text)
    kind = kind.group(1) if kind else ""
    if kind in ("", "Deployment", "CertManager", "ServiceMonitor", "APIService"):
        continue
    if kind == "Service":
        text = re.sub(r"(?m)^  selector:\n(?:    .*\n)+", "", text)
    if kind == "CustomResourceDefinition" and "name: mpijobs.kubeflow.org" in text and "name: v2beta1" not in text:
        continue
    kept.append(text)
print("---\n".join(kept), end="")
