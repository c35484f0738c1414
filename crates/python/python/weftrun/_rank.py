"""One rank of a function: ``python run.py RANK WORLD_SIZE``.

:mod:`weftrun._functions` copies this file into the folder of a call, as ``run.py``. The other side needs Python and nothing else,
so nothing of weftrun is imported here. ``RANK`` names the variable that has the number of the rank,
and a second word that of how many there are.
"""

import functools
import importlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from types import MappingProxyType
from typing import Any, Dict, Mapping, Tuple

#: Exit code of a rank that wants to be started again with another call.
AGAIN = 75
#: Signals that announce the end of the time.
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)

#: A function with its arguments.
Call = Tuple[Any, Tuple[Any, ...], Dict[str, Any]]


def write(folder: str, name: str, data: bytes) -> None:
    """Writes a file of a folder whole: it is there with all of its bytes, or not."""
    handle, temporary = tempfile.mkstemp(prefix="." + name, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            if os.geteuid() == 0:
                # Root in a container: whoever made the folder must be able to read what is in it.
                owner = os.stat(folder)
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        os.unlink(temporary)
        raise


class Problem(Exception):
    """What went wrong outside of the function: a sentence."""


def unbound(function: Any, args: Tuple[Any, ...] = (), keywords: Mapping[str, Any] = MappingProxyType({})) -> Call:
    """Returns a call with the arguments that ``functools.partial`` binds: an object inside one may have ``checkpoint()``."""
    while isinstance(function, functools.partial) and not hasattr(function, "checkpoint"):
        function, args, keywords = function.func, function.args + args, {**function.keywords, **keywords}
    return function, args, dict(keywords)


class Rank:
    """The call of this rank, and what becomes of it."""

    def __init__(self, folder: str, number: int, world: int) -> None:
        self.folder = folder
        self.number = number
        self.world = world
        self.process = os.getpid()
        with open(os.path.join(folder, "call.json"), encoding="utf-8") as file:
            self.facts: Dict[str, Any] = json.load(file)
        self.call: Call = unbound(None)

    def run(self) -> int:
        """Runs the call, writes its end, and returns the exit code."""
        try:
            # That of an earlier attempt is no result of this one.
            os.unlink(os.path.join(self.folder, "result-%d.pkl" % self.number))
        except FileNotFoundError:
            pass
        try:
            self.load()
            return self.finish(0, self.called())
        except BaseException as error:
            return self.fail(error)

    def load(self) -> None:
        """Reads the call."""
        there, here = tuple(self.facts["python"]), sys.version_info[:2]
        if there != here:
            raise Problem(
                "the function was sent by Python %d.%d, and this rank has Python %d.%d (%s on %s): bytecode of one cannot be "
                "read by the other; name another interpreter with `python=`, or submit with Python %d.%d"
                % (there + here + (sys.executable, socket.gethostname()) + here)
            )
        # The first is the folder of this file. The others are those of a sender that has the same files.
        sys.path[0:1] = [os.path.join(self.folder, "lib"), os.getcwd()]
        sys.path.extend(one for one in self.facts["path"] if one not in sys.path and os.path.exists(one))
        try:
            with open(os.path.join(self.folder, "call.pkl"), "rb") as file:
                self.call = unbound(*pickle.load(file))
        except ModuleNotFoundError as error:
            raise Problem(
                "the function needs the module `%s`, which %s does not have: send it with `code={'dir': '.'}`, install it "
                "there, or call cloudpickle.register_pickle_by_value(%s) before the submission"
                % (error.name, socket.gethostname(), error.name)
            ) from None
        except Exception as error:
            traceback.print_exc()
            raise Problem("the function cannot be read on %s: %s" % (socket.gethostname(), told(error))) from None

    def called(self) -> bytes:
        """Calls the function, and returns its pickled value."""
        function, args, keywords = self.call
        if callable(getattr(function, "checkpoint", None)):
            for number in SIGNALS:
                signal.signal(number, self.checkpoint)
        value = None
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            value = function(*args, **keywords)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        finally:
            # A signal that comes now finds a value, which another attempt would lose.
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            return dumps(value)
        except Exception as error:
            kind = type(value).__name__
            raise Problem("the result of rank %d (`%s`) cannot be sent: %s" % (self.number, kind, told(error))) from None

    def checkpoint(self, number: int, _frame: Any) -> None:
        """Asks the function what to call next, and starts that in a job of the same folder. Rank 0 does so for all."""
        # A forked worker has this handler too, and an old copy of the object.
        if self.number != 0 or os.getpid() != self.process:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.start_again(signal.Signals(number).name)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def start_again(self, name: str) -> None:
        """Writes what to call next, and ends this attempt; returns if there is nothing to call."""
        function, args, keywords = self.call
        following = function.checkpoint(*args, **keywords)
        if following is None:
            print("weftrun: %s: checkpoint() names nothing to call next; this call goes on" % name, file=sys.stderr)
            return
        done = int(self.facts.get("starts", 0)) + 1
        if done > int(self.facts["restarts"]):
            raise RuntimeError("the function was started again %d times, which is the limit (`restarts=`)" % (done - 1))
        write(self.folder, "call.pkl", dumps(_as_call(following)))
        write(self.folder, "call.json", json.dumps(dict(self.facts, starts=done)).encode())
        print("weftrun: %s: checkpoint %d is written; the job starts again" % (name, done), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        if self.requeue():
            # Slurm ends this process, and with it this attempt.
            time.sleep(300)
        else:
            write(self.folder, "again", b"%d" % done)
        os._exit(AGAIN)

    def requeue(self) -> bool:
        """Asks Slurm to queue the job again; false where there is no Slurm, or where it refuses."""
        job = os.environ.get("SLURM_JOB_ID")
        if job is None:
            return False
        try:
            subprocess.run(["scontrol", "requeue", job], check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            print("weftrun: the job is submitted again by who waits for it: %s" % error, file=sys.stderr)
            return False
        return True

    def fail(self, error: BaseException) -> int:
        """Writes what went wrong, also into the log."""
        code, what, payload = 1, told(error), b""
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
            inner = inner.tb_next
        text = "".join(traceback.format_exception(type(error), error, inner))
        if isinstance(error, Problem):
            text = what = str(error)
        elif isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 1
            text = what = "the function called sys.exit(%r)" % (error.code,)
        elif isinstance(error, KeyboardInterrupt):
            what = "the rank was interrupted (SIGINT)"
        elif isinstance(error, Exception):
            try:
                payload = dumps(error)
            except Exception:
                # The text has what the object would tell.
                payload = b""
        print(text, file=sys.stderr, flush=True)
        return self.finish(code, payload, what, text)

    def finish(self, code: int, payload: bytes, what: str = "", text: str = "") -> int:
        """Writes the end of this rank, and returns its exit code."""
        for data in (payload, b""):
            end = {
                "ok": code == 0,
                "rank": self.number,
                "world": self.world,
                "host": socket.gethostname(),
                "time": time.time(),
                "what": what,
                "traceback": text,
            }
            # Plain values first: whoever reads them knows how the rank ended, also where the payload cannot be read.
            try:
                write(self.folder, "result-%d.pkl" % self.number, pickle.dumps(end, protocol=4) + data)
                break
            except OSError as error:
                # The disk may have room for the words alone.
                code, what = code or 1, what or "the result of rank %d cannot be written: %s" % (self.number, error)
                print("weftrun: %s: %s" % (self.folder, error), file=sys.stderr)
        return code


def told(error: BaseException) -> str:
    """Returns an exception in one line."""
    try:
        return "%s: %s" % (type(error).__name__, error)
    except Exception:
        return "%s, which cannot be printed" % type(error).__name__


def dumps(value: Any) -> bytes:
    """Pickles with the cloudpickle that came with the call."""
    return bytes(importlib.import_module("cloudpickle").dumps(value))


def _as_call(following: Any) -> Call:
    """Returns what to call next: a callable, or submitit's ``DelayedSubmission``."""
    if hasattr(following, "function") and hasattr(following, "args") and hasattr(following, "kwargs"):
        return following.function, tuple(following.args), dict(following.kwargs)
    if not callable(following):
        raise TypeError("checkpoint() returned a `%s`, which cannot be called" % type(following).__name__)
    return following, (), {}


def main() -> int:
    """Runs the rank that the environment names."""
    # Until the function runs, and after it, a signal would find nothing to keep.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    variable = sys.argv[1]
    number, world = (os.environ.get(name, "") for name in sys.argv[1:3])
    if not number.isdigit():
        print("run.py: the environment has no number of a rank in %s" % variable, file=sys.stderr)
        return 2
    return Rank(os.path.dirname(os.path.abspath(__file__)), int(number), int(world) if world.isdigit() else 0).run()


if __name__ == "__main__":
    sys.exit(main())
