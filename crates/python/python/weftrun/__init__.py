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

A job is a ``dict`` with the keys of a job file, or the path of one. Reports are plain data with the same shape as
``weftrun ... -o json`` (``.data``); the most used values are attributes. All calls release the interpreter's lock,
and Ctrl-C interrupts them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sysconfig
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _html, _native, errors
from .errors import Error

__all__ = [
    "Error",
    "Finding",
    "Job",
    "LogLine",
    "Logs",
    "Mutation",
    "Plan",
    "Status",
    "Transport",
    "Why",
    "attach",
    "errors",
    "jobs",
    "mutate",
    "plan",
    "submit",
    "transport",
    "why",
]

#: A job: the keys of a job file, or the path of one.
Spec = Union[Mapping[str, Any], str, "os.PathLike[str]"]
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

#: Seconds after which a read of `async for` looks whether it is still wanted.
_ASYNC_WAIT = 0.2

_clients: Dict[int, _native.Client] = {}
_lock = threading.Lock()


def _client() -> _native.Client:
    # Threads do not survive a fork, so that each process has a client of its own.
    with _lock:
        if os.getpid() not in _clients:
            beside = os.path.join(sysconfig.get_path("scripts"), "weftrun")
            binary = beside if os.access(beside, os.X_OK) else shutil.which("weftrun")
            _clients.clear()
            _clients[os.getpid()] = _native.Client(binary=binary)
        return _clients[os.getpid()]


def _paths(paths: Paths) -> List[str]:
    if isinstance(paths, (str, os.PathLike)):
        return [os.fspath(paths)]
    return [os.fspath(path) for path in paths]


@dataclass(frozen=True)
class Finding:
    """Something that weftrun noticed."""

    #: Stable code; ``weftrun explain CODE`` has more.
    code: str
    #: ``error``, ``warning`` or ``info``.
    severity: str
    message: str
    #: What to change, if that is known.
    fix: Optional[str]

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Finding":
        fix = data.get("fix")
        if isinstance(fix, Mapping):
            fix = fix.get("text")
        return cls(data.get("code", ""), data.get("severity", ""), data.get("message", ""), fix)

    def __str__(self) -> str:
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{self.severity}: {self.message} [{self.code}]{fix}"


@dataclass(frozen=True)
class LogLine:
    """A line of a job's log, or a notice about the log."""

    #: The line without its newline, exactly as it was printed.
    bytes: bytes
    #: The pod, task or file that printed it.
    source: str
    #: Global rank, where the source is one rank.
    rank: Optional[int]
    role: str
    #: Restart of the source, from 0.
    attempt: int
    #: When it was printed, where the cluster reports that.
    time: Optional[datetime]
    #: Whether this is not a line of the job but weftrun's notice, for example that lines are missing.
    is_notice: bool

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 are replaced."""
        return self.bytes.decode("utf-8", "replace")

    def __str__(self) -> str:
        return self.text


class Logs:
    """The lines of a job's logs. Iterate with ``for`` or ``async for``; lines are read as they are needed."""

    def __init__(self, native: _native.Logs) -> None:
        self._native = native
        self._pending: Optional["asyncio.Future[Tuple[Optional[_native.Line], bool]]"] = None

    def __iter__(self) -> Iterator[LogLine]:
        return self

    def __next__(self) -> LogLine:
        line, _ = self._native.next()
        if line is None:
            raise StopIteration
        return _line(line)

    def __aiter__(self) -> AsyncIterator[LogLine]:
        return self

    async def __anext__(self) -> LogLine:
        while True:
            # A cancelled wait leaves its read behind, which ends soon; the next call takes its line.
            if self._pending is None:
                loop = asyncio.get_running_loop()
                self._pending = loop.run_in_executor(None, self._native.next, _ASYNC_WAIT)
            line, over = await asyncio.shield(self._pending)
            self._pending = None
            if line is not None:
                return _line(line)
            if over:
                raise StopAsyncIteration


def _line(line: "_native.Line") -> LogLine:
    data, source, rank, role, attempt, seconds, is_notice = line
    time = None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return LogLine(data, source, rank, role, attempt, time, is_notice)


class _Report:
    """A report of weftrun: plain data with the shape of ``-o json``."""

    def __init__(self, data: Dict[str, Any]) -> None:
        #: The report as ``-o json`` prints it.
        self.data = data

    @property
    def findings(self) -> List[Finding]:
        """What weftrun noticed, most severe first where the report is sorted so."""
        return [Finding._of(finding) for finding in self.data.get("findings") or []]


class Why(_Report):
    """The first cause of a failure or a hang."""

    def __init__(self, data: Dict[str, Any], text: str) -> None:
        super().__init__(data)
        self._text = text

    @property
    def state(self) -> str:
        """``failed``, ``hanging``, ``running``, ``succeeded`` or ``unknown``."""
        return str(self.data["state"])

    @property
    def cause(self) -> Optional[Dict[str, Any]]:
        """Class, ranks, nodes, sentence, frame and evidence of the cause; none if there is none."""
        return self.data.get("cause")

    @property
    def ranks(self) -> List[int]:
        """Global ranks that the cause is on."""
        return list((self.cause or {}).get("ranks") or [])

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Why {self.state}: {(self.cause or {}).get('what', 'no cause')}>"

    def _repr_html_(self) -> str:
        return _html.why(self.data, self._text)


class Transport(_Report):
    """Which transport each pair of ranks uses, and why not a faster one."""

    def __init__(self, data: Dict[str, Any], why: str) -> None:
        super().__init__(data)
        self._why = why

    @property
    def verdict(self) -> Dict[str, Any]:
        """What the logs prove about the fabric."""
        return dict(self.data["verdict"])

    @property
    def ok(self) -> Optional[bool]:
        """Whether the planned fabric is used; none if that is unknown."""
        return self.verdict.get("ok")

    @property
    def pairs(self) -> List[Dict[str, Any]]:
        """The pairs of ranks, with transport, network and channels."""
        return list(self.data.get("pairs") or [])

    def __repr__(self) -> str:
        return f"<Transport of {len(self.data.get('ranks') or [])} ranks, {len(self.pairs)} pairs, ok={self.ok}>"

    def _repr_html_(self) -> str:
        return _html.transport(self.data, self._why)


class Mutation(_Report):
    """A manifest or script with the fabric applied."""

    def __init__(self, text: str, data: Dict[str, Any]) -> None:
        super().__init__(data)
        #: The new text; the old one, to the byte, where nothing had to change.
        self.text = text

    @property
    def changed(self) -> bool:
        """Whether the text differs from the input."""
        return bool(self.data["changed"])

    @property
    def actions(self) -> List[str]:
        """What was done, in a few words each."""
        return list(self.data.get("actions") or [])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Mutation: {len(self.actions)} changes>"


class Status(_Report):
    """How a job ended."""

    @property
    def phase(self) -> str:
        """``succeeded``, ``failed``, ``cancelled``, and others before the end."""
        return str(self.data["job"]["phase"])

    @property
    def succeeded(self) -> bool:
        """Whether the job succeeded."""
        return self.phase == "succeeded"

    @property
    def exit_code(self) -> Optional[int]:
        """The job's own exit code, where the cluster has one."""
        code = self.data["job"].get("exit_code")
        return None if code is None else int(code)

    @property
    def why(self) -> Optional[Dict[str, Any]]:
        """Why it failed, as ``weftrun why -o json``; none if it did not."""
        return self.data.get("why")

    def __repr__(self) -> str:
        return f"<Status {self.phase}>"


class Job:
    """A submitted job. It goes on when this program ends."""

    def __init__(self, native: _native.Job) -> None:
        self._native = native

    @property
    def handle(self) -> str:
        """Names the job for :func:`attach` and for every ``weftrun`` command."""
        return self._native.handle

    def describe(self) -> Dict[str, Any]:
        """Returns everything known of the job, as ``weftrun describe -o json``."""
        return self._native.describe()

    def wait(self, timeout: Optional[float] = None) -> Status:
        """Waits for the end of the job.

        Raises :class:`errors.TimedOutError` after ``timeout`` seconds; the job goes on.
        """
        return Status(self._native.wait(timeout))

    def logs(
        self,
        follow: bool = True,
        ranks: Sequence[int] = (),
        tail: Optional[int] = None,
        previous: bool = False,
    ) -> Logs:
        """Returns the lines of the logs, until the job ends if ``follow``.

        ``ranks`` selects global ranks, ``tail`` the last lines of each source, and ``previous`` the attempt before the
        present one.
        """
        return Logs(self._native.logs(follow, list(ranks), tail, previous))

    def why(self) -> Why:
        """Returns why the job failed or hangs."""
        return Why(*self._native.why())

    def transport(self) -> Transport:
        """Returns which transports the logs prove so far."""
        return Transport(*self._native.transport())

    def cancel(self) -> None:
        """Ends the job; its record stays."""
        self._native.cancel()

    def delete(self) -> None:
        """Removes the job and its record."""
        self._native.delete()

    def __repr__(self) -> str:
        return f"<Job {self.handle}>"


class Plan(_Report):
    """What weftrun would change of a job, and why. Nothing was sent yet."""

    def __init__(self, native: _native.Plan) -> None:
        super().__init__(native.report())
        self._native = native

    @property
    def fabric(self) -> str:
        """The fabric that was planned."""
        return str(self.data["fabric"])

    @property
    def decisions(self) -> List[Dict[str, Any]]:
        """Each setting with its value, its reason and its source."""
        return list(self.data.get("decisions") or [])

    def explain(self) -> str:
        """Returns each decision with its reason, as text."""
        return self._native.explain()

    def render(self) -> Dict[str, str]:
        """Returns the documents that would be sent, by their titles."""
        return dict(self._native.render())

    def submit(self) -> Job:
        """Submits the job exactly once: a second call returns the same job.

        :class:`errors.AlreadyExistsError` names the job of an earlier submission of the same job that was interrupted before
        its handle was seen: attach to it, or submit again to run another one.

        Ctrl-C before the job is sent sends nothing; later, ``KeyboardInterrupt`` names the job once the cluster has answered.
        """
        return Job(self._native.submit())

    def __repr__(self) -> str:
        return f"<Plan {self.data['name']}: {len(self.decisions)} decisions, fabric {self.fabric}>"

    def _repr_html_(self) -> str:
        return _html.plan(self.data)


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
    if isinstance(spec, Mapping):
        return Plan(_client().plan(None, json.dumps(spec), backend, profile, online))
    return Plan(_client().plan(os.fspath(spec), None, backend, profile, online))


def submit(spec: Spec, backend: Optional[str] = None, *, profile: Optional[str] = None) -> Job:
    """Submits a job exactly once.

    After :class:`errors.UnreachableError` the job may exist: see :func:`jobs` before you submit it again.
    """
    return plan(spec, backend, profile=profile, online=True).submit()


def attach(handle: str) -> Job:
    """Returns the job with a handle, whoever submitted it."""
    return Job(_client().attach(handle))


def jobs(
    backend: Optional[str] = None, *, all: bool = False, labels: Optional[Dict[str, str]] = None
) -> List[Dict[str, Any]]:
    """Returns the jobs of a target, as ``weftrun list -o json``; with ``all`` also ended jobs and those of others.

    ``labels`` selects the jobs that have all of them; a backend that lists no labels raises :class:`UnsupportedError`.
    """
    return list(_client().list(backend, all, labels or {})["jobs"])


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
