"""Clients, plans and jobs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sysconfig
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from typing import overload

from . import _html, _native, errors
from ._reports import Bandwidth, Doctor, Health, Logs, Nodes, Probe, Ran, Report, Status, Transport, Verify, Why, _Report, _time
from .spec import JobSpec

if TYPE_CHECKING:
    from ._functions import FunctionJob
    from ._native import Plan as NativePlan

T = TypeVar("T")

#: The phases of a job that has ended.
_ENDS = ("succeeded", "failed", "cancelled")

#: A job: the keys of a job file, or the path of one.
Spec = Union[JobSpec, str, "os.PathLike[str]"]

_lock = threading.Lock()


def _unlock() -> None:
    # Another thread, which the child does not have, may hold it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def _given(spec: Spec) -> Tuple[Optional[str], Optional[str]]:
    """Returns the path of a job, or its text."""
    if isinstance(spec, Mapping):
        return None, json.dumps(spec)
    return os.fspath(spec), None


class Client:
    """Plans, submits and finds jobs with one configuration.

    ``config`` is a file instead of the user's, and ``env`` an environment instead of that of the process: for tests, and for a
    program with several users. Both are read once. The functions of the module use a client of their own.

    A client, its plans and its jobs may be used by several threads and by forked processes.
    """

    def __init__(
        self, config: Union[None, str, "os.PathLike[str]"] = None, env: Optional[Mapping[str, str]] = None
    ) -> None:
        self._config = None if config is None else os.path.abspath(os.fspath(config))
        self._env = None if env is None else dict(env)
        # Threads do not survive a fork: each process has its own. The parent's stays, since nobody could end it here.
        self._natives: Dict[int, _native.Client] = {}
        self._here()

    def _here(self) -> _native.Client:
        with _lock:
            pid = os.getpid()
            if pid not in self._natives:
                self._natives[pid] = _native.Client(self._config, self._program(), self._env)
            return self._natives[pid]

    def _program(self) -> Optional[str]:
        """Finds the program `weftrun` of this package, or another one."""
        beside = os.path.join(sysconfig.get_path("scripts"), "weftrun")
        path = None if self._env is None else self._env.get("PATH", "")
        return beside if os.access(beside, os.X_OK) else shutil.which("weftrun", path=path)

    def _run(self, *words: str) -> Dict[str, Any]:
        """Runs a verb of the program that has no function, and returns what it prints with `-o json`."""
        program = self._program()
        if program is None:
            raise errors.NotFoundError({"message": "the program `weftrun` is not in PATH", "hints": ["install the wheel again"]})
        config = [] if self._config is None else ["--config", self._config]
        command = [program, "-o", "json", *config, *words]
        done = subprocess.run(command, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # A verdict has an exit code of its own, and its report is on stdout all the same.
        for text in (done.stdout, *reversed(done.stderr.splitlines())):
            try:
                report = json.loads(text)
            except ValueError:
                continue
            if "error" in report:
                raise errors.from_report(report)
            return dict(report)
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise errors.ProtocolError({"message": f"`weftrun {words[0]}` ended with {done.returncode} and no report: {said}"})

    def plan(
        self, spec: Spec, backend: Optional[str] = None, *, profile: Optional[str] = None, online: bool = False
    ) -> "Plan":
        """Plans a job; see :func:`weftrun.plan`."""
        return Plan(self, self._here().plan(*_given(spec), backend, profile, online))

    @overload
    def submit(self, spec: Spec, backend: Optional[str] = None, *, profile: Optional[str] = None) -> "Job": ...

    @overload
    def submit(self, spec: Callable[..., T], *args: Any, **keywords: Any) -> "FunctionJob[T]": ...

    def submit(self, spec: Any, *args: Any, **keywords: Any) -> Any:
        """Submits a job exactly once, or a call of a function; see :func:`weftrun.submit`."""
        if callable(spec):
            # It needs this module.
            from ._functions import submit_function

            return submit_function(self, spec, args, keywords)
        return self._submit(spec, *args, **keywords)

    def _submit(self, spec: Spec, backend: Optional[str] = None, *, profile: Optional[str] = None) -> "Job":
        return self.plan(spec, backend, profile=profile, online=True).submit()

    def attach(self, handle: str) -> "Job":
        """Returns the job with a handle; see :func:`weftrun.attach`."""
        return Job(self, self._here().attach(handle, False))

    def jobs(
        self, backend: Optional[str] = None, *, all: bool = False, labels: Optional[Mapping[str, str]] = None
    ) -> List["Job"]:
        """Returns the jobs of a target; see :func:`weftrun.jobs`."""
        native = self._here()
        rows = native.list(backend, all, dict(labels or {}))["jobs"]
        return [Job(self, native.attach(row["handle"], True), row) for row in rows]

    def doctor(self, backend: Optional[str] = None) -> Doctor:
        """Asks a target what is reachable, with which rights, and what would prevent a job."""
        return Doctor(self._here().doctor(backend))

    def verify(
        self,
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
        """Runs a benchmark of collectives on the nodes of a job, and judges its figures. The job's command is replaced.

        ``sizes`` are the smallest and the largest in bytes; ``bisect`` searches for slow nodes if the run is degraded.
        Figures of GPUs that other programs used are judged only with ``force``.
        """
        path, text = _given(spec)
        native = self._here()
        return Verify(native.verify(path, text, backend, list(collectives), sizes, rounds, bisect, force, timeout))

    def verify_logs(self, paths: Sequence[str], *, instance_type: Optional[str] = None) -> Verify:
        """Judges the figures of nccl-tests in some logs; see :func:`weftrun.verify_logs`."""
        kind = [] if instance_type is None else [f"--instance-type={instance_type}"]
        return Verify(self._run("verify", *kind, *[f"--from={path}" for path in paths]))

    def nodes(self, backend: Optional[str] = None, *, bad: bool = False, offline: bool = False) -> Nodes:
        """Judges the nodes of a target by the jobs that ran on them; see :func:`weftrun.nodes`."""
        target = [] if backend is None else ["-b", backend]
        return Nodes(self._run("nodes", *target, *["--bad"][: int(bad)], *["--offline"][: int(offline)]))

    def bandwidth(self, inputs: Sequence[str], *, instance_type: Optional[str] = None) -> Bandwidth:
        """Returns how fast the collectives of some files, or of a job, are; see :func:`weftrun.bandwidth`."""
        kind = [] if instance_type is None else [f"--instance-type={instance_type}"]
        return Bandwidth(self._run("bandwidth", *kind, "--", *inputs))

    def probe(self, spec: Spec, backend: Optional[str] = None, *, timeout: float = 600) -> Probe:
        """Runs a job that only reports what its nodes have. The job's command is replaced."""
        return Probe(self._here().probe(*_given(spec), backend, timeout))

    def __reduce__(self) -> Tuple[Any, ...]:
        if self is _default:
            return _default_client, ()
        return Client, (self._config, self._env)

    def __repr__(self) -> str:
        return f"<Client {self._config or 'with the configuration of the user'}>"


_default: Optional[Client] = None
_default_of: Any = None


def _default_client() -> Client:
    """Returns the client of the module's functions. A changed environment or folder makes a new one."""
    global _default, _default_of
    try:
        folder = os.getcwd()
    except OSError:
        # It was removed, which is no reason to fail.
        folder = ""
    now = (folder, dict(os.environ))
    if _default is None or _default_of != now:
        _default, _default_of = Client(), now
    return _default


def reload() -> None:
    """Makes the module's functions read the configuration again.

    They do so by themselves when the environment or the working folder has changed. Plans and jobs keep their own client.
    """
    global _default
    _default = None


class Job:
    """A submitted job. It goes on when this program ends.

    Jobs with the same handle are equal; a job can be pickled, and used in a forked process.
    """

    def __init__(self, client: Client, native: _native.Job, summary: Optional[Dict[str, Any]] = None) -> None:
        self._client = client
        self._pid = os.getpid()
        self._native = native
        #: The job's line in the list, as ``weftrun list -o json``, if it comes from :func:`weftrun.jobs`.
        self.summary = summary

    def _here(self) -> _native.Job:
        if self._pid != os.getpid():
            self._native = self._client._here().attach(self._native.handle, True)
            self._pid = os.getpid()
        return self._native

    @property
    def handle(self) -> str:
        """Names the job for :func:`weftrun.attach` and for every ``weftrun`` command."""
        return self._native.handle

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def plan(self) -> Optional[Dict[str, Any]]:
        """What was decided for it, as ``weftrun plan -o json``; none if it was submitted from another machine."""
        return self._native.plan()

    @property
    def created(self) -> Optional[datetime]:
        """When it was submitted, where the cluster reports that."""
        summary = self.summary or self.describe()["job"]
        return _time(summary.get("created"))

    def describe(self) -> Dict[str, Any]:
        """Returns everything known of the job, as ``weftrun describe -o json``."""
        return self._here().describe()

    def wait(self, timeout: Optional[float] = None) -> Status:
        """Waits for the end of the job.

        Raises :class:`errors.TimedOutError` after ``timeout`` seconds; the job goes on.
        """
        return Status(self._here().wait(timeout))

    def _ended(self) -> Optional[Status]:
        """Returns how the job ended; none while it goes on. It does not wait."""
        return Job.wait(self) if self.describe()["phase"] in _ENDS else None

    def __await__(self) -> Generator[Any, None, Status]:
        """Waits for the end of the job; other tasks of the loop continue. A cancelled task leaves the job as it is."""
        return self._awaited().__await__()

    async def _awaited(self) -> Status:
        loop, pause = asyncio.get_running_loop(), 0.1
        while True:
            status = await loop.run_in_executor(None, self._ended)
            if status is not None:
                return status
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 5.0)

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
        return Logs(self._here().logs(follow, list(ranks), tail, previous))

    def watch(self) -> Iterator[Dict[str, Any]]:
        """Returns the events of the job until it ends, as ``weftrun watch -o json`` prints them."""
        events = self._here().watch()
        return iter(events.next, None)

    def why(self) -> Why:
        """Returns why the job failed or hangs."""
        return Why(*self._here().why())

    def transport(self) -> Transport:
        """Returns which transports the logs prove so far."""
        return Transport(*self._here().transport())

    def bandwidth(self, *, instance_type: Optional[str] = None) -> Bandwidth:
        """Returns how fast its collectives are, and which rank the others wait for. It was submitted with ``bandwidth``."""
        return self._client.bandwidth([self.handle], instance_type=instance_type)

    def report(self) -> Report:
        """Returns everything known of the job and its logs, as ``weftrun report -o json``."""
        return Report(self._here().report())

    def health(
        self, *, observe: float = 20, timeout: float = 20, force: bool = False, diagnose: bool = False
    ) -> Health:
        """Asks NCCL's RAS service in the running job whether its ranks make progress.

        Ranks that are behind are observed for ``observe`` seconds; ``force`` asks also versions of NCCL that a query can crash;
        ``diagnose`` asks for NCCL's own diagnostics too.
        """
        return Health(self._here().health(observe, timeout, force, diagnose))

    def exec(self, command: Sequence[str], *, rank: Optional[int] = None) -> Ran:
        """Runs a command beside a rank, or on the job's first node; no shell reads it."""
        return Ran(*self._here().exec(list(command), rank))

    def cancel(self) -> None:
        """Ends the job; its record stays."""
        self._here().cancel()

    def suspend(self) -> None:
        """Suspends the job and releases its nodes."""
        self._here().suspend()

    def resume(self) -> None:
        """Resumes a suspended job."""
        self._here().resume()

    def delete(self) -> None:
        """Removes the job and its record."""
        self._here().delete()

    def __eq__(self, other: object) -> bool:
        return self.handle == other.handle if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __reduce__(self) -> Tuple[Callable[..., "Job"], Tuple[Any, ...]]:
        return _bound, (self._client, self.handle, self.summary)

    def __repr__(self) -> str:
        return f"<Job {self.handle}>"


def _bound(client: Client, handle: str, summary: Optional[Dict[str, Any]]) -> Job:
    return Job(client, client._here().attach(handle, True), summary)


class Plan(_Report):
    """What weftrun would change of a job, and why. Nothing was sent yet."""

    _client: Client
    _pid: int
    _native: NativePlan
    _table = "decisions"

    def __init__(self, client: Client, native: NativePlan) -> None:
        super().__init__(native.report(), _client=client, _pid=os.getpid(), _native=native)

    def _here(self) -> NativePlan:
        if self._pid != os.getpid():
            # The same plan, for this process.
            self.__dict__.update(_native=self._client._here().adopt(self._native), _pid=os.getpid())
        return self._native

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
        return dict(self._here().render())

    def submit(self) -> Job:
        """Submits the job exactly once: a second call returns the same job, also in a forked process.

        :class:`errors.AlreadyExistsError` names the job of an earlier submission of the same job that was interrupted before
        its handle was seen: attach to it, or submit again to run another one.

        Ctrl-C raises :class:`errors.SubmissionInterrupted`, a ``KeyboardInterrupt``. Before the job is sent nothing is sent;
        later, it names the job once the cluster has answered.
        """
        native = self._here()
        try:
            return Job(self._client, native.submit())
        except errors.SubmissionInterrupted:
            raise
        except KeyboardInterrupt:
            # It came after the answer of the cluster, before the caller had the job.
            if native.handle is None:
                raise
            raise errors.SubmissionInterrupted(native.handle) from None

    def __repr__(self) -> str:
        return f"<Plan {self.data['name']}: {len(self.decisions)} decisions, fabric {self.fabric}>"

    def _repr_html_(self) -> str:
        return _html.plan(self.data)
