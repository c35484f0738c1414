"""An executor whose calls are jobs."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple, Type, TypeVar

from . import errors
from ._client import _ENDS, Client, _default_client
from ._functions import WORDS, Call, FunctionJob, Settings, unknown

T = TypeVar("T")

_log = logging.getLogger("weftrun")

#: Seconds between two looks at the jobs: soon after a change, and seldom while nothing happens.
_SOON, _SELDOM = 0.1, 5.0

_open: "weakref.WeakSet[Executor]" = weakref.WeakSet()


class JobFuture(Future[T]):
    """The future of a call that is a job. Its result is that of rank 0."""

    #: The job; none until it is submitted. ``future.job.cancel()`` ends one that runs.
    job: Optional[FunctionJob[T]] = None


class Executor(concurrent.futures.Executor):
    """Runs calls as jobs of a target: an executor as those of :mod:`concurrent.futures`.

        with weftrun.Executor("prod", nodes=2, gpus_per_node=8, max_jobs=4) as executor:
            for loss in executor.map(train, [1e-3, 3e-4, 1e-4]):
                print(loss)

    The keywords are those of :func:`weftrun.submit` that are not the function's. At most ``max_jobs`` jobs are in the cluster at
    once, without it all of them. One thread submits and watches them. The jobs do not depend on this program: where it is
    interrupted, they go on, and a warning names them.
    """

    def __init__(
        self,
        backend: Optional[str] = None,
        *,
        client: Optional[Client] = None,
        max_jobs: Optional[int] = None,
        **resources: Any,
    ) -> None:
        for name in resources:
            if name not in WORDS:
                raise TypeError("; ".join(unknown(name)) or f"`{name}` is no key of a job")
        self._settings = Settings.of({"backend": backend, **resources})
        if max_jobs is not None and max_jobs < 1:
            raise ValueError("`max_jobs` must be 1 or more")
        self._client = client or _default_client()
        self._most = max_jobs
        self._begin()
        _open.add(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: Deque[Tuple[JobFuture[Any], Call]] = deque()
        self._running: List[JobFuture[Any]] = []
        self._thread: Optional[threading.Thread] = None
        self._told: Set[str] = set()
        self._closed = self._left = self._is_lost = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> JobFuture[T]:
        """Runs ``fn(*args, **kwargs)`` as a job. What cannot be sent is an error here; what the cluster refuses is the future's."""
        if self._pid != os.getpid():
            # A forked child has neither the thread nor the jobs of its parent, and its locks may be held for ever.
            self._begin()
        call = self._settings.prepare(self._client, fn, args, kwargs)
        future: JobFuture[T] = JobFuture()
        with self._changed:
            if self._closed:
                call.discard()
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="weftrun-executor", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and waits for those that there are. Ctrl-C ends the wait; the jobs go on, and a warning names them.

        ``cancel_futures`` cancels the calls that are not yet submitted. Jobs that run are not ended.
        """
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closed = True
            dropped = self._drop() if cancel_futures else []
            self._changed.notify_all()
        for call in dropped:
            call.discard()
        if not wait:
            return
        try:
            with self._changed:
                while (self._waiting or self._running) and not self._left:
                    self._changed.wait()
        except KeyboardInterrupt:
            self._leave()
            raise

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._leave()
        else:
            self.shutdown(wait=True)

    def _drop(self) -> List[Call]:
        """Cancels the calls that are not submitted. The caller has the lock, and discards them without it."""
        dropped = []
        while self._waiting:
            future, call = self._waiting.popleft()
            if future.cancel():
                future.set_running_or_notify_cancel()
            dropped.append(call)
        return dropped

    def _leave(self, at_exit: bool = False) -> None:
        """Takes no more calls, and says what goes on without this program. While that lives, the futures get their results."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closed, self._left = True, at_exit
            dropped = self._drop()
            self._changed.notify_all()
        # Another Ctrl-C may end this.
        self._tell()
        if dropped:
            _log.warning("calls that were cancelled before they were submitted: %d", len(dropped))
        for call in dropped:
            call.discard()
        if at_exit and self._thread is not None:
            # It may be submitting; whatever comes of that is told, too. A native call must not outlive the interpreter.
            try:
                self._thread.join()
            finally:
                self._tell()

    def _tell(self) -> None:
        """Names, once, the jobs that go on."""
        jobs = [future.job for future in list(self._running) if future.job is not None and future.job.folder not in self._told]
        if jobs:
            names = "\n".join(f"  {job.handle}   {job.folder}" for job in jobs)
            text = "jobs that go on: %d; `weftrun cancel HANDLE` ends one, and FunctionJob.attach(FOLDER) has its result:\n%s"
            _log.warning(text, len(jobs), names)
            self._told.update(job.folder for job in jobs)

    def _watch(self) -> None:
        """Runs the thread. Nobody else would tell the futures of an error in here."""
        try:
            self._serve()
        except BaseException as error:
            with self._changed:
                self._closed = True
                dropped, running = self._drop(), list(self._running)
            for call in dropped:
                call.discard()
            for future in running:
                self._end(future, error)
            raise

    def _serve(self) -> None:
        """Submits what waits and finds what has ended, until there is nothing more to do."""
        pause = _SOON
        while True:
            with self._changed:
                while not (self._waiting or self._running or self._closed):
                    self._changed.wait()
                if self._left or not (self._waiting or self._running):
                    return
            started, ended = self._start(), self._collect()
            with self._changed:
                pause = _SOON if started or ended else min(pause * 1.5, _SELDOM)
                self._changed.notify_all()
                if self._running and not self._left:
                    self._changed.wait(pause)

    def _start(self) -> bool:
        """Submits calls while there is room for them, for a moment: some may have ended."""
        started, until = False, time.monotonic() + 1
        while time.monotonic() < until:
            with self._changed:
                full = self._most is not None and len(self._running) >= self._most
                if full or self._left or not self._waiting:
                    return started
                future, call = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    call.discard()
                    continue
                self._running.append(future)
            started = True
            try:
                future.job = call.start()
            except BaseException as error:
                self._end(future, error)
        return started

    def _collect(self) -> bool:
        """Gives the futures of jobs that have ended their results."""
        with self._changed:
            watched = list(self._running)
        try:
            phases = self._phases()
        except errors.Error as error:
            # The jobs go on, whether or not the cluster can be asked.
            if not self._is_lost:
                _log.warning("the jobs cannot be listed, which is tried again: %s", error)
            self._is_lost = True
            return False
        self._is_lost = False
        ended = False
        for future in watched:
            if future.job is None or phases.get(future.job.handle, "ended") not in (*_ENDS, "ended"):
                continue
            try:
                status = future.job._ended()
                if status is not None:
                    failure = future.job._finish(status)
                    self._end(future, failure, None if failure else future.job._value(0))
                    ended = True
            except Exception as error:
                if isinstance(error, errors.Error) and error.retryable:
                    _log.warning("%s cannot be asked for, which is tried again: %s", future.job.handle, error)
                else:
                    self._end(future, error)
                    ended = True
        return ended

    def _phases(self) -> Dict[str, str]:
        """Asks once for all jobs."""
        rows = self._client._here().list(self._settings.options["backend"], True, {})["jobs"]
        return {row["handle"]: row["phase"] for row in rows}

    def _end(self, future: JobFuture[Any], error: Optional[BaseException], value: Any = None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
        with self._changed:
            self._running.remove(future)
            self._changed.notify_all()


@atexit.register
def _leave_all() -> None:
    for executor in list(_open):
        executor._leave(at_exit=True)
