"""An executor whose calls are jobs."""

from __future__ import annotations

import atexit
import concurrent.futures
import difflib
import logging
import os
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Type, TypeVar

from . import errors
from ._client import _ENDS, Client, _default_client
from ._functions import _JOB_KEYS, _OPTIONS, Call, FunctionJob, Settings

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
        self._settings = Settings()
        for name, value in {"backend": backend, **resources}.items():
            if not self._settings.take(name, value):
                near = difflib.get_close_matches(name, _JOB_KEYS | _OPTIONS, 1)
                raise TypeError(f"`{name}` is no key of a job" + (f": did you mean `{near[0]}`?" if near else ""))
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
            if cancel_futures:
                self._drop()
            self._changed.notify_all()
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

    def _drop(self) -> int:
        """Cancels the calls that are not submitted; returns how many. The caller has the lock."""
        count = len(self._waiting)
        while self._waiting:
            future, call = self._waiting.popleft()
            if future.cancel():
                future.set_running_or_notify_cancel()
            call.discard()
        return count

    def _leave(self) -> None:
        """Stops watching, and says what goes on without this program."""
        if self._pid != os.getpid():
            return
        with self._changed:
            if self._left:
                return
            self._closed = self._left = True
            dropped = self._drop()
            self._changed.notify_all()
        if self._thread is not None:
            # It may be submitting; whatever comes of that is told, too. A native call must not outlive the interpreter.
            self._thread.join()
        jobs = [future.job for future in self._running if future.job is not None]
        if jobs:
            names = "\n".join(f"  {job.handle}   {job.folder}" for job in jobs)
            text = "%d jobs go on; `weftrun cancel HANDLE` ends one, and FunctionJob.attach(FOLDER) has its result:\n%s"
            _log.warning(text, len(jobs), names)
        if dropped:
            _log.warning("%d calls were cancelled before they were submitted", dropped)

    def _watch(self) -> None:
        """Runs the thread. Nobody else would tell the futures of an error in here."""
        try:
            self._serve()
        except BaseException as error:
            with self._changed:
                self._closed = True
                self._drop()
                running = list(self._running)
            for future in running:
                self._end(future, error, [])
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
        """Submits calls while there is room for them."""
        started = False
        while True:
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
                self._end(future, error, [])

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
                    self._end(future, *future.job._finish(status))
                    ended = True
            except Exception as error:
                if isinstance(error, errors.Error) and error.retryable:
                    _log.warning("%s cannot be asked for, which is tried again: %s", future.job.handle, error)
                else:
                    self._end(future, error, [])
                    ended = True
        return ended

    def _phases(self) -> Dict[str, str]:
        """Asks once for all jobs."""
        rows = self._client._here().list(self._settings.options["backend"], True, {})["jobs"]
        return {row["handle"]: row["phase"] for row in rows}

    def _end(self, future: JobFuture[Any], error: Optional[BaseException], values: List[Any]) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(values[0])
        with self._changed:
            self._running.remove(future)
            self._changed.notify_all()


@atexit.register
def _leave_all() -> None:
    for executor in list(_open):
        executor._leave()
