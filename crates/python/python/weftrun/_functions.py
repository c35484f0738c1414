"""Functions as jobs: a call goes into a folder that both sides see, and the end of each rank comes back in it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import difflib
import fcntl
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
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, Iterator, List, Mapping, Optional, Tuple, TypeVar, Union, cast

from . import _native, _rank, errors
from ._client import _ENDS, Client, Job, _default_client
from ._reports import Status, import_optional
from .spec import JobSpec

T = TypeVar("T")
Path = Union[str, "os.PathLike[str]"]

_log = logging.getLogger("weftrun")

#: Keywords that are the job's, and not the function's.
_JOB_KEYS = frozenset(JobSpec.__annotations__) - {"backend"}
_OPTIONS = frozenset(("backend", "profile", "folder", "folder_there", "python", "job", "restarts"))
WORDS = _JOB_KEYS | _OPTIONS
_REFUSED_KEYS = ("command", "roles", "array", "sweep")
#: Backends whose ranks see no folder of this machine unless the job mounts it.
_PODS = ("kubeflow", "runai")
#: The variables with the number of a rank and how many there are, by `launch`.
_RANK_OF = {launch: ["RANK", "WORLD_SIZE"] for launch in ("per-rank", "torchrun")}
_RANK_OF["per-node"] = ["NODE_RANK", "NNODES"]
#: Seconds for which the files of a job that has ended may be late: a file system of the network shows them after a while.
_LATE = 5.0


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

    def start(self, attempt: int = 0) -> "FunctionJob[Any]":
        """Submits it, and writes the handle where every process finds it."""
        plan = None
        try:
            plan = self.client.plan(cast(JobSpec, self.document), self.backend, profile=self.profile, online=True)
            job = FunctionJob[Any](self.client, plan.submit()._native, self.folder)
            _keep(self.folder, attempt, job.handle)
            _log.info("submitted %s; its results come to %s", job.handle, self.folder)
            return job
        except BaseException as error:
            if plan is None and attempt == 0:
                self.discard()
            # Otherwise the job may exist, whatever was raised, and the folder stays.
            handle = getattr(error, "handle", None) or (plan._native.handle if plan else None)
            if handle is None:
                raise
            _log.warning("submitted %s; its results come to %s", handle, self.folder)
            with contextlib.suppress(OSError):
                _keep(self.folder, attempt, handle)
            if isinstance(error, KeyboardInterrupt):
                raise errors.SubmissionInterrupted(handle, folder=self.folder) from None
            if isinstance(error, errors.Error) or not isinstance(error, OSError):
                raise
            message = f"the job was submitted: {handle}, and its folder {self.folder} cannot be written: {error.strerror}"
            raise _error(errors.InputOutputError, message, f"`weftrun cancel {handle}` ends it") from error

    def discard(self) -> None:
        """Removes what was never submitted."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Settings:
    """What of a submission is the job's, and not the function's."""

    options: Dict[str, Any]
    keys: Dict[str, Any]

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "Settings":
        """Takes what is the job's from the keywords of a submission."""
        options, keys = ({name: keywords[name] for name in keywords if name in known} for known in (_OPTIONS, _JOB_KEYS))
        return cls(options, keys)

    def prepare(
        self, client: Client, function: Callable[..., Any], args: Tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Call:
        """Writes a call into a folder of its own."""
        _check_arguments(function, args, keywords)
        own = _rank.unbound(function)[0]
        if inspect.iscoroutinefunction(own) or inspect.iscoroutinefunction(getattr(own, "__call__", None)):
            fix = f"send a function that runs it: lambda: asyncio.run({_name(function)}(…))"
            raise _error(errors.UsageError, f"`{_name(function)}` is an `async def`, which only a loop runs", fix)
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
        if callable(getattr(own, "checkpoint", None)):
            _ask_for_a_signal(document)
        call = Call(client, os.path.join(parent, number), document, backend, self.options.get("profile"))
        try:
            os.mkdir(call.folder, 0o700)
            _fill(call, data, sys.path if same_files else [], self.options.get("restarts", 10))
        except BaseException as error:
            call.discard()
            if not isinstance(error, OSError):
                raise
            # That of shutil is a list of all files.
            why = error.strerror or error.args[0][0][2]
            raise _error(errors.InputOutputError, f"the call cannot be written to {call.folder}: {why}") from None
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
    words = [script, *_RANK_OF[launch]]
    # torchrun starts scripts with its own interpreter.
    document["command"] = words if launch == "torchrun" else [python, *words]


def _signature(function: Callable[..., Any]) -> Optional[inspect.Signature]:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions of C have none.
        return None


def _check_arguments(function: Callable[..., Any], args: Tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    """Raises what the call would raise on each rank, before anything is sent."""
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(*args, **keywords)
    except TypeError as error:
        hints = [hint for name in keywords if name not in signature.parameters for hint in unknown(name)]
        raise _error(errors.UsageError, f"`{_name(function)}` cannot be called so: {error}", *hints) from None


def unknown(name: str) -> List[str]:
    """Returns what a keyword may have been meant to be."""
    near = difflib.get_close_matches(name, WORDS, 1)
    return [f"`{name}` is no key of a job: did you mean `{near[0]}`?"] if near else []


def _name(function: Any) -> str:
    own = _rank.unbound(function)[0]
    return str(getattr(own, "__qualname__", type(own).__name__))


def split(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Tuple[Settings, Dict[str, Any]]:
    """Tells the keywords of the job from those of the function."""
    signature = _signature(function)
    for name in signature.parameters if signature else ():
        if name in WORDS and name in keywords:
            raise _error(
                errors.UsageError,
                f"`{name}` is a parameter of `{_name(function)}` and a word of the job",
                f"for the function: functools.partial({_name(function)}, {name}=…)",
                f"for the job: a function without this parameter, or, where it is a key of the job file, job={{'{name}': …}}",
            )
    return Settings.of(keywords), {name: keywords[name] for name in keywords if name not in WORDS}


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
        self._error: Optional[BaseException] = None
        #: The ranks that returned; none until the job has ended.
        self._ranks: Optional[List[int]] = None
        self._values: Dict[int, T] = {}

    @classmethod
    def attach(cls, folder: Path, *, client: Optional[Client] = None) -> "FunctionJob[Any]":
        """Returns a job of another process by the folder of its call."""
        path = os.path.abspath(os.fspath(folder))
        handle = _newest(path)[1]
        if not handle:
            raise _error(errors.NotFoundError, f"{path} is not the folder of a submitted function")
        return _bound(client or _default_client(), handle, path)

    def _here(self) -> "_native.Job":
        # Whoever submitted it, the newest attempt is the job. Without a folder, as after a deletion, it is the last one known.
        handle = _newest(self.folder)[1] or self.handle
        if handle != self.handle:
            _log.info("%s wrote a checkpoint, and goes on as %s", self.handle, handle)
            self._native, self._pid = self._client._here().attach(handle, True), os.getpid()
        return super()._here()

    def wait(self, timeout: Optional[float] = None) -> Status:
        """Waits for the end of the job, also over starts from a checkpoint. Raises :class:`errors.TimedOutError`."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self._here()
            status = Status(job.wait(None if until is None else max(0.0, until - time.monotonic())))
            if not self._goes_on(job.handle, status):
                return status

    def done(self) -> bool:
        """Whether the job has ended. One that ended with a checkpoint is submitted again, and goes on."""
        return self._ended() is not None

    def result(self, timeout: Optional[float] = None) -> T:
        """Returns what rank 0 returned, once the job has ended; raises the exception of the rank that failed first."""
        self._raise(timeout)
        return self._value(0)

    def results(self, timeout: Optional[float] = None) -> List[T]:
        """Returns what each rank returned, in their order; raises the exception of the rank that failed first."""
        self._raise(timeout)
        return list(self.returned().values())

    def returned(self, timeout: Optional[float] = None) -> Dict[int, T]:
        """Returns what came of the ranks that returned, by rank, once the job has ended, also where others failed."""
        self.exception(timeout)
        return {rank: self._value(rank) for rank in self._ranks or []}

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Returns the exception of the rank that failed first; none if all succeeded.

        Its ``__cause__`` has the traceback of the rank, and its notes (Python 3.11) have the rank, the job, and the cause that
        :meth:`why` finds. Raises :class:`concurrent.futures.CancelledError` if the job was cancelled.
        """
        if self._ranks is None:
            self._finish(self.wait(timeout))
        return self._error

    def _raise(self, timeout: Optional[float]) -> None:
        error = self.exception(timeout)
        if error is not None:
            raise error

    def cancel(self) -> None:
        """Ends the job, and lets no checkpoint start it again; its record stays."""
        with _locked(self.folder):
            wanted = _wanted(self.folder)
            if wanted > _newest(self.folder)[0]:
                _keep(self.folder, wanted, self._here().handle)
            super().cancel()

    def delete(self) -> None:
        """Removes the job, its record and its folder."""
        with contextlib.suppress(errors.NotFoundError):
            super().delete()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ended(self) -> Optional[Status]:
        job = self._here()
        if job.describe()["phase"] not in _ENDS:
            return None
        status = Status(job.wait(None))
        return None if self._goes_on(job.handle, status) else status

    def _goes_on(self, waited: str, status: Status) -> bool:
        """Whether another attempt follows one that ended: whoever finds a checkpoint that none follows submits it."""
        wanted = _wanted(self.folder)
        if not wanted:
            return False
        with _locked(self.folder):
            attempt, newest = _newest(self.folder)
            if newest == waited and wanted > attempt and status.phase == "failed":
                with _opened(self.folder, "job.json") as file:
                    saved = json.load(file)
                call = Call(self._client, self.folder, saved["document"], saved["backend"], saved["profile"])
                newest = call.start(wanted).handle
        return newest not in ("", waited)

    def _finish(self, status: Status) -> Optional[BaseException]:
        """Finds what became of the ranks of a job that has ended; returns the exception."""
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
        notes, returned = self._notes(status), sorted(rank for rank, end in ends.items() if end["ok"])
        if failed:
            self._error = self._raised(min(failed, key=lambda end: float(end["time"])), notes)
        elif missing:
            if returned:
                notes.append("`returned()` of the job has what came of the others")
            if not status.why or not status.why.get("cause"):
                notes.append("if the ranks ran: does each node see this folder, at this path? `folder=` names another one")
            ranks = f"rank {', '.join(map(str, missing[:8]))}{' and more' if len(missing) > 8 else ''}"
            message = f"the job {status.phase}, and {ranks} left no result in {self.folder}"
            self._error = _error(errors.FunctionError, message, *notes)
        elif not status.succeeded:
            _log.warning("each rank returned, and then %s %s: %s", self.handle, status.phase, "; ".join(notes) or "no cause is known")
        self._ranks = returned
        return self._error

    def _ends(self) -> Dict[int, Dict[str, Any]]:
        """Reads how the ranks ended, without what they returned or raised."""
        found = {}
        for name in os.listdir(self.folder):
            match = re.fullmatch(r"result-(\d{1,7})\.pkl", name)
            if match:
                with _opened(self.folder, name) as file:
                    found[int(match.group(1))] = dict(pickle.load(file))
        return found

    def _sent(self, rank: int) -> Any:
        """Reads what a rank returned or raised."""
        with _opened(self.folder, f"result-{rank}.pkl") as file:
            # How it ended comes first.
            pickle.load(file)
            return pickle.load(file)

    def _value(self, rank: int) -> T:
        if rank not in self._values:
            try:
                self._values[rank] = self._sent(rank)
            except errors.InputOutputError:
                raise
            except Exception as error:
                message = f"what rank {rank} of {self.handle} returned cannot be read here: {_rank.told(error)}"
                hint = "it must be of classes that this program can import, too"
                raise _error(errors.FunctionError, message, hint) from error
        return self._values[rank]

    def _raised(self, end: Mapping[str, Any], notes: List[str]) -> BaseException:
        """Returns the exception of a rank, with where it came from."""
        notes = [f"rank {end['rank']} on {end['host']}, {self.handle}", *notes]
        error: BaseException
        try:
            sent = self._sent(end["rank"])
        except Exception as failed:
            _log.info("rank %s left no exception that can be read here: %s", end["rank"], failed)
            sent = None
        if isinstance(sent, Exception):
            error = sent
        else:
            error, notes = _error(errors.FunctionError, str(end["what"]), *notes), []
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


def _keep(folder: str, attempt: int, handle: str) -> None:
    """Writes which job is the newest attempt of a call: the number of checkpoints before it, and its handle."""
    _rank.write(folder, "handle", f"{attempt} {handle}".encode())


def _newest(folder: str) -> Tuple[int, str]:
    attempt, _, handle = _text(folder, "handle").partition(" ")
    return _number(attempt), handle


def _wanted(folder: str) -> int:
    """Returns the attempt that a rank wants, since it could not queue the job again itself; 0 if none."""
    return _number(_text(folder, "again"))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _text(folder: str, name: str) -> str:
    """Reads a short file of a call; one that is missing is empty."""
    try:
        with _opened(folder, name) as file:
            return str(file.read(4096).decode())
    except errors.InputOutputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lets one thread of all programs that wait for a call decide what follows."""
    file = None
    try:
        file = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        _log.warning("%s cannot be locked: wait for this job in one thread of one program only: %s", folder, error)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


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
