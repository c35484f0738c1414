"""Functions as jobs: a call goes into a folder that both sides see, and the end of each rank comes back in it."""

from __future__ import annotations

import concurrent.futures
import difflib
import inspect
import json
import logging
import os
import pickle
import pkgutil
import re
import secrets
import shutil
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar, Union, cast

from . import _native, _rank, errors
from ._client import Client, Job, Plan, _default_client
from ._reports import Status, import_optional
from .spec import JobSpec

T = TypeVar("T")
Path = Union[str, "os.PathLike[str]"]

_log = logging.getLogger("weftrun")

#: Keywords that are the job's, and not the function's.
_JOB_KEYS = frozenset(JobSpec.__annotations__) - {"backend"}
_OPTIONS = frozenset(("backend", "profile", "folder", "folder_there", "python", "job", "restarts"))
_REFUSED_KEYS = ("command", "roles", "array", "sweep")
#: Backends whose ranks see no folder of this machine unless the job mounts it.
_PODS = ("kubeflow", "runai")
#: How a rank is numbered, by `launch`.
_RANK_OF = {"per-rank": "RANK", "torchrun": "RANK", "per-node": "NODE_RANK"}
#: Seconds for which the files of a job that has ended may be late: a file system of the network shows them after a while.
_LATE = 5.0
#: Seconds for which another process may take to submit the job that follows a checkpoint.
_TAKEN = 60.0


def _error(kind: "type[errors.Error]", message: str, *hints: str) -> errors.Error:
    return kind({"message": message, "hints": list(hints)})


class RemoteTraceback(Exception):
    """The traceback of a rank, as text: the cause of the exception that is raised here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


@dataclass
class Call:
    """A function with its arguments in a folder, ready to be submitted."""

    client: Client
    folder: str
    document: Dict[str, Any]
    backend: Optional[str] = None
    profile: Optional[str] = None

    def start(self) -> "FunctionJob[Any]":
        """Submits it."""
        try:
            plan = self.plan()
        except BaseException:
            self.discard()
            raise
        # From here on the job may exist, whatever is raised: the folder stays.
        job = self.submit(plan)
        _log.info("submitted %s; its results come to %s", job.handle, self.folder)
        return FunctionJob(self.client, job._native, self.folder)

    def plan(self) -> Plan:
        """Plans it, which sends nothing."""
        return self.client.plan(cast(JobSpec, self.document), self.backend, profile=self.profile, online=True)

    def submit(self, plan: Plan) -> Job:
        """Submits a plan, and writes the handle where every process finds it."""
        handle = None
        try:
            job = plan.submit()
            handle = job.handle
            return job
        except errors.SubmissionInterrupted as interrupt:
            handle = interrupt.handle
            raise
        finally:
            if handle is not None:
                _rank.write(self.folder, "handle", handle.encode())

    def discard(self) -> None:
        """Removes what was never submitted."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Settings:
    """What of a submission is the job's, and not the function's."""

    options: Dict[str, Any] = field(default_factory=dict)
    keys: Dict[str, Any] = field(default_factory=dict)

    def take(self, name: str, value: Any) -> bool:
        """Takes a keyword; false if it is not the job's."""
        if name in _OPTIONS:
            self.options[name] = value
        elif name in _JOB_KEYS:
            self.keys[name] = value
        else:
            return False
        return True

    def prepare(
        self, client: Client, function: Callable[..., Any], args: Tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Call:
        """Writes a call into a folder of its own."""
        _check_arguments(function, args, keywords)
        data = _pickled(function, args, dict(keywords))
        backend, number = self.options.get("backend"), secrets.token_hex(6)
        on = client._here().backend(backend)
        document = {**(self.options.get("job") or {}), **self.keys}
        same_files = on == "local" or "image" not in document
        parent, there = self._folder(on, document)
        name = re.sub("[^a-z0-9]+", "-", _name(function).rpartition(".")[2].lower()).strip("-")[:40]
        document.setdefault("name", f"{name or 'function'}-{number[:6]}")
        python = self.options.get("python") or (sys.executable if same_files else "python3")
        _set_command(document, python, os.path.join(there, number, "run.py"))
        if callable(getattr(function, "checkpoint", None)):
            _ask_for_a_signal(document)
        call = Call(client, os.path.join(parent, number), document, backend, self.options.get("profile"))
        os.mkdir(call.folder, 0o700)
        try:
            _fill(call, data, sys.path if same_files else [], self.options.get("restarts", 10))
        except BaseException:
            call.discard()
            raise
        return call

    def _folder(self, on: str, document: Mapping[str, Any]) -> Tuple[str, str]:
        """Returns the folder of all calls, here and where the ranks run."""
        given = self.options.get("folder")
        parent = os.path.abspath(os.fspath(given or os.path.join(".weftrun", "functions")))
        there = os.fspath(self.options.get("folder_there") or parent)
        if on in _PODS:
            _check_mount(on, None if given is None else there, document)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        if given is None:
            # The calls are no part of the user's code, which `code = {dir = "."}` sends.
            _rank.write(parent, ".gitignore", b"*\n")
        mode = os.stat(parent).st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            fix = f"name a folder below it that does not exist yet, or run `chmod go-w {parent}`"
            raise _error(errors.UsageError, f"others may write in {parent}, and could replace the function", fix)
        return parent, there


def _check_mount(on: str, there: Optional[str], document: Mapping[str, Any]) -> None:
    """Refuses a folder that the pods of a job do not see."""
    example = 'volumes={"shared": {"mount": "/fsx", "claim": "fsx"}}'
    hint = f"give `folder=` on a file system that this machine and the pods share, and mount it, for example with {example}"
    if there is None:
        raise _error(errors.UsageError, f"`{on}` runs the ranks in pods, which see no folder of this machine", hint)
    mounts = [str(one.get("mount") or "/none") for one in (document.get("volumes") or {}).values()]
    if not any(there == mount or there.startswith(mount.rstrip("/") + "/") for mount in mounts):
        other = "where the pods see the folder at another path, name that with `folder_there=`"
        raise _error(errors.UsageError, f"the pods do not see {there}: no volume of the job is mounted there", hint, other)


def _set_command(document: Dict[str, Any], python: str, script: str) -> None:
    """Makes a job start the script of a call once for each rank."""
    for key in _REFUSED_KEYS:
        if key in document:
            raise _error(errors.UsageError, f"a job of a function has no `{key}` of its own")
    launch = document.setdefault("launch", "per-rank")
    if launch not in _RANK_OF:
        message = f"a function cannot be started with `launch = {launch!r}`"
        raise _error(errors.UsageError, message, f"use one of {', '.join(_RANK_OF)}")
    words = [script, _RANK_OF[launch]]
    # torchrun starts scripts with its own interpreter.
    document["command"] = words if launch == "torchrun" else [python, *words]


def _check_arguments(function: Callable[..., Any], args: Tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    """Raises what the call would raise on each rank, before anything is sent."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions of C have none.
        return
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        near = [(name, difflib.get_close_matches(name, _JOB_KEYS, 1)) for name in keywords if name not in signature.parameters]
        hints = [f"`{name}` is no key of a job: did you mean `{found[0]}`?" for name, found in near if found]
        raise _error(errors.UsageError, f"`{_name(function)}` cannot be called so: {error}", *hints) from None


def _name(function: Any) -> str:
    # Of a `functools.partial`, that of its function.
    return str(getattr(getattr(function, "func", function), "__qualname__", type(function).__name__))


def split(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Tuple[Settings, Dict[str, Any]]:
    """Tells the keywords of the job from those of the function."""
    settings, own = Settings(), {}
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    for name, value in keywords.items():
        if not settings.take(name, value):
            own[name] = value
        elif name in parameters:
            raise _error(
                errors.UsageError,
                f"`{name}` is a parameter of `{_name(function)}` and a word of the job",
                f"for the function: functools.partial({_name(function)}, {name}=…)",
                f"for the job: a function without this parameter, or, where it is a key of the job file, job={{'{name}': …}}",
            )
    return settings, own


def _pickled(function: Callable[..., Any], args: Tuple[Any, ...], keywords: Dict[str, Any]) -> bytes:
    """Pickles a call; an error names the part of it that cannot be sent."""
    cloudpickle = import_optional("cloudpickle", "functions", "to submit a function")

    def failure(value: Any) -> Optional[Exception]:
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            return error
        return None

    try:
        return bytes(cloudpickle.dumps((function, args, keywords)))
    except Exception as error:
        parts = [(f"argument {at}", value) for at, value in enumerate(args)]
        parts += [(f"the argument `{name}`", value) for name, value in keywords.items()]
        parts += [(f"the variable `{name}`, which it uses,", value) for name, value in _used_by(function).items()]
        bad = [(part, found) for part, value in parts for found in [failure(value)] if found]
        told = [f"{part} cannot be sent: {found}" for part, found in bad] or [str(error)]
        fix = "make it inside the function, where it runs: locks, open files, sockets and running threads belong to one process"
        raise _error(errors.UsageError, f"`{_name(function)}` cannot be sent: {'; '.join(told)}", fix) from error


def _used_by(function: Any) -> Dict[str, Any]:
    """Returns the variables outside of a function that it uses."""
    try:
        used = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        # No function of Python, or one whose variables have no value yet.
        return {}
    return {**used.globals, **used.nonlocals}


def _ask_for_a_signal(document: Dict[str, Any]) -> None:
    """Has Slurm signal the ranks before the time limit, and lets it queue the job again."""
    backends = dict(document.get("backend") or {})
    backends["slurm"] = {"signal": "USR2@90", "requeue": True, **(backends.get("slurm") or {})}
    document["backend"] = backends


def _fill(call: Call, data: bytes, path: List[str], restarts: int) -> None:
    """Writes what the ranks need: the call, the script that runs it, and the reader of its pickle."""
    script = pkgutil.get_data("weftrun", "_rank.py")
    package = os.path.dirname(import_optional("cloudpickle", "functions", "to submit a function").__file__)
    os.mkdir(os.path.join(call.folder, "lib"), 0o700)
    shutil.copytree(package, os.path.join(call.folder, "lib", "cloudpickle"), ignore=shutil.ignore_patterns("__pycache__"))
    facts = {"python": sys.version_info[:2], "path": [one for one in path if one], "restarts": int(restarts)}
    again = {"document": call.document, "backend": call.backend, "profile": call.profile}
    for name, text in {"run.py": script or b"", "call.pkl": data, "call.json": _json(facts), "job.json": _json(again)}.items():
        _rank.write(call.folder, name, text)


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def submit_function(
    client: Client, function: Callable[..., T], args: Tuple[Any, ...], keywords: Mapping[str, Any]
) -> "FunctionJob[T]":
    """Submits a call of a function; see :func:`weftrun.submit`."""
    settings, own = split(function, keywords)
    return settings.prepare(client, function, args, own).start()


class FunctionJob(Job, Generic[T]):
    """A function that runs as a job. Its results are in :attr:`folder`, whoever waits for them."""

    def __init__(self, client: Client, native: "_native.Job", folder: str) -> None:
        super().__init__(client, native)
        #: The folder of the call: its results come here. :meth:`delete` removes it.
        self.folder = folder
        self._end: Optional[Tuple[Optional[BaseException], List[T]]] = None

    @classmethod
    def attach(cls, folder: Path, *, client: Optional[Client] = None) -> "FunctionJob[Any]":
        """Returns a job of another process by the folder of its call."""
        path = os.path.abspath(os.fspath(folder))
        return _bound(client or _default_client(), _handle(path), path)

    def wait(self, timeout: Optional[float] = None) -> Status:
        """Waits for the end of the job, also over starts from a checkpoint. Raises :class:`errors.TimedOutError`."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status = super().wait(None if until is None else max(0.0, until - time.monotonic()))
            if not self._start_again(status):
                return status

    def done(self) -> bool:
        """Whether the job has ended."""
        return self._ended() is not None

    def result(self, timeout: Optional[float] = None) -> T:
        """Returns what rank 0 returned, once the job has ended; raises the exception of the rank that failed first."""
        return self.results(timeout)[0]

    def results(self, timeout: Optional[float] = None) -> List[T]:
        """Returns what each rank returned, in their order; raises the exception of the rank that failed first."""
        error, values = self._outcome(timeout)
        if error is not None:
            raise error
        return values

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Returns the exception of the rank that failed first; none if all succeeded.

        Its ``__cause__`` has the traceback of the rank, and its notes (Python 3.11) have the rank, the job, and the cause that
        :meth:`why` finds. Raises :class:`concurrent.futures.CancelledError` if the job was cancelled.
        """
        return self._outcome(timeout)[0]

    def delete(self) -> None:
        """Removes the job, its record and its folder."""
        super().delete()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _outcome(self, timeout: Optional[float]) -> Tuple[Optional[BaseException], List[T]]:
        if self._end is None:
            self._end = self._finish(self.wait(timeout))
        return self._end

    def _ended(self) -> Optional[Status]:
        status = super()._ended()
        return None if status is None or self._start_again(status) else status

    def _start_again(self, status: Status) -> bool:
        """Goes on with the job that follows a checkpoint, where the rank could not queue this one again itself."""
        if status.succeeded or status.phase == "cancelled":
            return False
        wanted = os.path.join(self.folder, "again")
        taken, until = wanted + ".taken", time.monotonic() + _TAKEN
        try:
            # Only one of those who wait submits it.
            os.rename(wanted, taken)
        except OSError:
            while os.path.lexists(taken) and time.monotonic() < until:
                time.sleep(0.2)
        else:
            with _opened(self.folder, "job.json") as file:
                saved = json.load(file)
            call = Call(self._client, self.folder, saved["document"], saved["backend"], saved["profile"])
            call.submit(call.plan())
            os.unlink(taken)
        before, now = self.handle, _handle(self.folder)
        if now == before:
            return False
        _log.info("%s wrote a checkpoint, and goes on as %s", before, now)
        self._native, self._pid = self._client._here().attach(now, True), os.getpid()
        return True

    def _finish(self, status: Status) -> Tuple[Optional[BaseException], List[T]]:
        """Returns the exception of a job that has ended, or the values of its ranks."""
        if status.phase == "cancelled":
            raise concurrent.futures.CancelledError(f"the job was cancelled: {self.handle}")
        until = time.monotonic() + _LATE
        while True:
            ends = self._ends()
            failed = [end for end in ends.values() if not end["ok"]]
            world = max([end["world"] for end in ends.values()], default=0) or len(ends)
            missing = [rank for rank in range(max(world, 1)) if rank not in ends]
            if failed or not missing or time.monotonic() > until:
                break
            time.sleep(0.2)
        if failed:
            return self._raised(min(failed, key=lambda end: float(end["time"])), status), []
        if status.succeeded and not missing:
            return None, [cast(T, pickle.loads(ends[rank]["payload"])) for rank in sorted(ends)]
        what = "the job succeeded" if status.succeeded else f"the job {status.phase}"
        ranks = f"rank {', '.join(map(str, missing[:8]))}{' and more' if len(missing) > 8 else ''} left no result in {self.folder}"
        hint = "if the ranks ran: does each node see this folder, at this path? `folder=` names another one"
        error = _error(errors.FunctionError, f"{what}, and {ranks}", *self._notes(status), hint)
        return error, []

    def _ends(self) -> Dict[int, Dict[str, Any]]:
        """Reads how the ranks ended."""
        found = {}
        for name in os.listdir(self.folder):
            match = re.fullmatch(r"result-(\d{1,7})\.pkl", name)
            if match:
                with _opened(self.folder, name) as file:
                    found[int(match.group(1))] = dict(pickle.load(file))
        return found

    def _raised(self, end: Mapping[str, Any], status: Status) -> BaseException:
        """Returns the exception of a rank, with where it came from."""
        try:
            error = pickle.loads(end["payload"]) if end["payload"] else None
        except Exception as failed:
            _log.info("the exception of rank %s cannot be read here: %s", end["rank"], failed)
            error = None
        notes = [f"rank {end['rank']} on {end['host']}, {self.handle}", *self._notes(status)]
        if not isinstance(error, Exception):
            error = _error(errors.FunctionError, str(end["what"]), *notes)
            notes = []
        text = str(end["traceback"])
        if hasattr(error, "add_note"):
            for note in notes:
                error.add_note(note)
        else:
            text = "\n".join([text, *notes])
        error.__cause__ = RemoteTraceback(text)
        return error

    def _notes(self, status: Status) -> List[str]:
        cause = (status.why or {}).get("cause") or {}
        return [f"why: {cause['what']}"] if cause.get("what") else []

    def __eq__(self, other: object) -> bool:
        # The handle changes where a checkpoint goes on as another job.
        return self.folder == other.folder if isinstance(other, FunctionJob) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.folder)

    def __reduce__(self) -> Tuple[Callable[..., "FunctionJob[Any]"], Tuple[Any, ...]]:
        return _bound, (self._client, self.handle, self.folder)


def _bound(client: Client, handle: str, folder: str) -> "FunctionJob[Any]":
    return FunctionJob(client, client._here().attach(handle, True), folder)


def _handle(folder: str) -> str:
    """Returns the handle of the job of a call: the last one."""
    with _opened(folder, "handle") as file:
        return str(file.read(4096).decode())


def _opened(folder: str, name: str) -> Any:
    """Opens a file of a call. A pickle can do anything: it is read only if the user wrote it, and nobody else could."""
    kind = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    path = os.path.join(folder, name)
    try:
        inside = os.open(folder, kind | os.O_DIRECTORY)
        try:
            file = os.fdopen(os.open(name, kind, dir_fd=inside), "rb")
            owner = os.fstat(inside).st_uid
        finally:
            os.close(inside)
    except OSError as error:
        raise _error(errors.InputOutputError, f"{path} cannot be read: {error.strerror}", "links are not followed") from error
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or {found.st_uid, owner} != {os.geteuid()} or found.st_mode & 0o022:
        file.close()
        raise _error(
            errors.InputOutputError,
            f"{path} is not read: it belongs to another user, others may write it, or it is no file",
            "the ranks must run as the user who submitted the function",
        )
    return file
