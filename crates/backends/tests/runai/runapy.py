"""The vendor's own Python client as the referee.

    runapy.py bodies FOLDER          every FOLDER/KIND.NAME.json through the models of this version
    runapy.py requests URL ID SECRET the client's requests against a control plane, its answers through the models
    runapy.py list URL ID SECRET     lists all workloads, and prints how long it took
"""

import json
import pathlib
import sys
import time

from runai import models

REQUESTS = {
    "distributed": models.DistributedCreationRequest,
    "trainings": models.TrainingCreationRequest,
    "workspaces": models.WorkspaceCreationRequest,
}


def lost(given, kept, path=""):
    """Paths of what a model did not keep: fields it does not know."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            here = f"{path}.{key}" if path else key
            if key not in kept:
                yield here
            else:
                yield from lost(value, kept[key], here)
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, (one, other) in enumerate(zip(given, kept)):
            yield from lost(one, other, f"{path}[{index}]")
    elif given != kept:
        yield f"{path}: {given!r} became {kept!r}"


def bodies(folder):
    checked, wrong = 0, []
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        kind = file.name.split(".")[0]
        body = json.loads(file.read_text())
        try:
            kept = REQUESTS[kind].from_dict(body).to_dict()
        except Exception as error:  # pydantic says what is wrong and where
            wrong.append(f"{file.name}: {error}")
            continue
        # Enumerations and dates print as the words they came as.
        kept = json.loads(json.dumps(kept, default=lambda value: getattr(value, "value", str(value))))
        wrong += [f"{file.name}: {path}" for path in lost(body, kept)]
        checked += 1
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"checked {checked}")


def client(url, application, secret):
    from runai.api_client import ApiClient
    from runai.configuration import Configuration
    from runai.runai_client import RunaiClient

    configuration = Configuration(client_id=application, client_secret=secret, runai_base_url=url)
    return RunaiClient(ApiClient(configuration))


def data(response):
    """The parsed answer, whatever this version of the client wraps it in."""
    return getattr(response, "data", response)


def requests(url, application, secret):
    runai = client(url, application, secret)
    projects = data(runai.organizations.projects.get_projects(filter_by=["name==nlp"]))
    project = projects["projects"][0]
    clusters = data(runai.organizations.clusters.get_clusters())
    models.DisplayedCluster.from_dict(clusters[0])
    request = models.DistributedCreationRequest.from_dict({
        "name": "official",
        "projectId": project["id"],
        "clusterId": project["clusterId"],
        "masterSpecSameAsWorker": True,
        "spec": {
            "image": "example.test/trainer:1",
            "command": "sh -c",
            "args": "'echo official; sleep 300'",
            "distributedFramework": "PyTorch",
            "numWorkers": 1,
            "compute": {"gpuDevicesRequest": 1},
        },
    })
    made = data(runai.workloads.distributed.create_distributed(request))
    workload = models.DistributedWorkload.from_dict(made).workload_id
    listed = data(runai.workloads.workloads.get_workloads(filter_by=["name==official"]))
    for entry in listed["workloads"]:
        models.Workload.from_dict(entry)
    assert len(listed["workloads"]) == 1, listed
    pods = data(runai.workloads.pods.get_workload_pods(workload))
    for pod in pods["pods"]:
        models.Pod1.from_dict(pod)
    assert len(pods["pods"]) == 2, pods
    events = data(runai.workloads.events.get_workload_events(workload))
    assert "events" in events, events
    history = data(runai.workloads.events.get_workload_history(workload))
    assert history["records"], history
    distributed = runai.workloads.distributed
    if hasattr(distributed, "suspend_distributed"):
        distributed.suspend_distributed(workload)
        read = data(distributed.get_distributed(workload))
        assert models.DistributedWorkload.from_dict(read).actual_phase == "Stopped", read
        distributed.resume_distributed(workload)
    distributed.delete_distributed(workload)
    print("done")


def listing(url, application, secret):
    runai = client(url, application, secret)
    began, found, offset = time.monotonic(), 0, 0
    while offset is not None:
        page = data(runai.workloads.workloads.get_workloads(limit=500, offset=offset))
        found += len(page["workloads"])
        offset = page.get("next")
    print(json.dumps({"found": found, "seconds": time.monotonic() - began}))


if __name__ == "__main__":
    {"bodies": bodies, "requests": requests, "list": listing}[sys.argv[1]](*sys.argv[2:])
