"""Run distributed GPU training on a real fabric, and see which transport each pair of ranks uses.

    import weftrun

    job = weftrun.submit({
        "name": "llama",
        "image": "pytorch:25.09",
        "nodes": 2,
        "gpus_per_node": 8,
        "command": ["torchrun", "train.py"],
    }, backend="prod")
    for line in job.logs():
        print(line)
    status = job.wait()
    if not status.succeeded:
        print(job.why())

A job is a ``dict`` with the keys of a job file (:class:`JobSpec`), or the path of one. Reports are plain data with the same
shape as ``weftrun ... -o json`` (``.data``); the most used values are attributes. All calls release the interpreter's lock,
and Ctrl-C interrupts them.
"""

from __future__ import annotations

import os
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union, overload

from . import _native, errors, spec
from ._client import Client, Job, Plan, Spec, _default_client, _given, reload
from ._executor import Executor, JobFuture
from ._functions import FunctionJob
from ._reports import (
    Bandwidth,
    Doctor,
    Finding,
    Health,
    Import,
    Lint,
    LogLine,
    Logs,
    Mutation,
    Nodes,
    Probe,
    Ran,
    Report,
    Status,
    Transport,
    Verify,
    Why,
)
from .errors import Error
from .spec import JobSpec

__all__ = [
    "Bandwidth",
    "Client",
    "Doctor",
    "Error",
    "Executor",
    "Finding",
    "FunctionJob",
    "Health",
    "Import",
    "Job",
    "JobFuture",
    "JobSpec",
    "Lint",
    "LogLine",
    "Logs",
    "Mutation",
    "Nodes",
    "Plan",
    "Probe",
    "Ran",
    "Report",
    "Spec",
    "Status",
    "Transport",
    "Verify",
    "Why",
    "attach",
    "bandwidth",
    "doctor",
    "errors",
    "import_job",
    "jobs",
    "lint",
    "mutate",
    "nodes",
    "plan",
    "probe",
    "reload",
    "spec",
    "submit",
    "transport",
    "verify",
    "verify_logs",
    "why",
]

T = TypeVar("T")
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def _paths(paths: Paths) -> List[str]:
    if isinstance(paths, (str, os.PathLike)):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


def plan(
    spec: Spec,
    backend: Optional[str] = None,
    *,
    profile: Optional[str] = None,
    online: bool = False,
) -> Plan:
    """Plans a job; ``online`` asks the cluster for its facts.

    ``backend`` is a target of the configuration or a backend's name; without it the default target is used.
    """
    return _default_client().plan(spec, backend, profile=profile, online=online)


@overload
def submit(spec: Spec, backend: Optional[str] = None, *, profile: Optional[str] = None) -> Job: ...


@overload
def submit(spec: Callable[..., T], *args: Any, **keywords: Any) -> FunctionJob[T]: ...


def submit(spec: Any, *args: Any, **keywords: Any) -> Any:
    """Submits a job exactly once: a ``dict``, the path of a job file, or a function with its arguments.

        job = weftrun.submit(train, lr=1e-3, nodes=2, gpus_per_node=8, backend="prod")
        print(job.result())

    Each rank calls the function, and the folder of the call brings back what each returned or raised. Keywords that are keys of
    a job file are the job's, and so are ``backend``, ``profile``, ``folder`` (where the folders of calls are made, on a file
    system that both sides see; by default ``.weftrun/functions``), ``folder_there`` (the same folder as the ranks see it),
    ``python`` (their interpreter), ``job`` (a ``dict`` of further keys) and ``restarts`` (how often checkpoints start it again).
    All others are the function's. It needs ``weftrun[functions]``.

    After :class:`errors.UnreachableError` the job may exist: see :func:`jobs` before you submit it again.
    """
    return _default_client().submit(spec, *args, **keywords)


def attach(handle: str) -> Job:
    """Returns the job with a handle, whoever submitted it; :class:`errors.NotFoundError` if the cluster does not have it."""
    return _default_client().attach(handle)


def jobs(
    backend: Optional[str] = None, *, all: bool = False, labels: Optional[Mapping[str, str]] = None
) -> List[Job]:
    """Returns the jobs of a target; with ``all`` also ended jobs and those of others. ``.summary`` has the line of each.

    ``labels`` selects the jobs that have all of them; a backend that lists no labels raises :class:`errors.UnsupportedError`.
    """
    return _default_client().jobs(backend, all=all, labels=labels)


def doctor(backend: Optional[str] = None) -> Doctor:
    """Asks a target what is reachable, with which rights, and what would prevent a job."""
    return _default_client().doctor(backend)


def verify(
    spec: Spec,
    backend: Optional[str] = None,
    *,
    collectives: Sequence[str] = ("all-reduce",),
    sizes: Tuple[int, int] = (1 << 20, 8 << 30),
    rounds: int = 20,
    bisect: bool = False,
    force: bool = False,
    timeout: float = 1800,
) -> Verify:
    """Runs a benchmark of collectives on the nodes of a job, and judges its figures; see :meth:`Client.verify`."""
    return _default_client().verify(
        spec,
        backend,
        collectives=collectives,
        sizes=sizes,
        rounds=rounds,
        bisect=bisect,
        force=force,
        timeout=timeout,
    )


def verify_logs(paths: Paths, *, instance_type: Optional[str] = None) -> Verify:
    """Judges the figures that a run of nccl-tests printed, without a cluster."""
    return _default_client().verify_logs(_paths(paths), instance_type=instance_type)


def probe(spec: Spec, backend: Optional[str] = None, *, timeout: float = 600) -> Probe:
    """Runs a job that only reports what its nodes have; see :meth:`Client.probe`."""
    return _default_client().probe(spec, backend, timeout=timeout)


def nodes(backend: Optional[str] = None, *, bad: bool = False, offline: bool = False) -> Nodes:
    """Judges the nodes of a target by the jobs that ran on them, and asks the cluster for its own word unless ``offline``.

    ``bad`` selects those that are suspected or watched.
    """
    return _default_client().nodes(backend, bad=bad, offline=offline)


def bandwidth(paths: Paths, *, instance_type: Optional[str] = None) -> Bandwidth:
    """Returns how fast each collective is by the files of a profiler of NCCL, and which rank makes the others wait."""
    # A bare word would be the name of a job.
    files = [os.path.abspath(path) for path in _paths(paths)]
    return _default_client().bandwidth(files, instance_type=instance_type)


def lint(
    spec: Union[Spec, str],
    *,
    profile: Optional[str] = None,
    instance_type: Optional[str] = None,
) -> Lint:
    """Returns what is wrong with a job (a ``dict``), or with a job file, Kubernetes manifests or a batch script (a path)."""
    path, text = _given(spec)
    if path is None:
        return Lint(_native.lint("the job", text or "", True, profile, instance_type))
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read().encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return Lint(_native.lint(path, text, path.endswith(".toml"), profile, instance_type))


def import_job(text: str, *, name: Optional[str] = None, whole: bool = False) -> Import:
    """Converts a job in another form to a job file: a PyTorchJob, MPIJob or TrainJob, a batch script, or a command line of ``runai``.

    ``name`` chooses one of several jobs; ``whole`` keeps a batch script as it is.
    """
    return Import(_native.import_job(text, name, whole))


def mutate(text: str, *, profile: Optional[str] = None, instance_type: Optional[str] = None) -> Mutation:
    """Applies the fabric to Kubernetes manifests, or to a batch script (a text that begins with ``#!``).

    Without ``profile``, evidence in the text chooses one; without evidence nothing is changed.
    """
    return Mutation(*_native.mutate(text, profile, instance_type))


def transport(paths: Paths, *, fabric: Optional[str] = None) -> Transport:
    """Returns which transports log files prove: files, folders, patterns, also compressed with gzip or zstd.

    ``fabric`` is the planned one, which :attr:`Transport.ok` compares with.
    """
    return Transport(*_native.transport(_paths(paths), fabric))


def why(paths: Paths) -> Why:
    """Returns why the job of some log files failed or hangs."""
    return Why(*_native.why(_paths(paths)))
