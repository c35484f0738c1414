"""One rank of a function: ``python run.py RANK``.

:mod:`weftrun._functions` copies this file into the folder of a call, as ``run.py``. The other side needs Python and nothing else,
so nothing of weftrun is imported here. ``RANK`` names the variable that has the number of the rank.
"""

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
from typing import Any, Dict, Optional, Tuple

#: Exit code of a rank that wants to be started again with another call.
AGAIN = 75


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


class Rank:
    """The call of this rank, and what becomes of it."""

    def __init__(self, folder: str, number: int) -> None:
        self.folder = folder
        self.number = number
        with open(os.path.join(folder, "call.json"), encoding="utf-8") as file:
            self.facts: Dict[str, Any] = json.load(file)
        self.call: Tuple[Any, Tuple[Any, ...], Dict[str, Any]] = (None, (), {})

    def run(self) -> int:
        """Runs the call, writes its end, and returns the exit code."""
        try:
            # That of an earlier attempt is no result of this one.
            os.unlink(os.path.join(self.folder, "result-%d.pkl" % self.number))
        except FileNotFoundError:
            pass
        problem = self.load()
        if problem is not None:
            return self.fail(problem)
        function, args, keywords = self.call
        if callable(getattr(function, "checkpoint", None)):
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, self.checkpoint)
        try:
            value = function(*args, **keywords)
        except SystemExit as end:
            if end.code in (None, 0):
                return self.succeed(None)
            self.fail("the function called sys.exit(%r)" % (end.code,))
            raise
        except KeyboardInterrupt:
            return self.fail("the rank was interrupted (SIGINT)")
        except Exception as error:
            return self.fail("%s: %s" % (type(error).__name__, error), error)
        return self.succeed(value)

    def load(self) -> Optional[str]:
        """Reads the call; returns why it cannot be read."""
        there, here = tuple(self.facts["python"]), sys.version_info[:2]
        if there != here:
            return (
                "the function was sent by Python %d.%d, and this rank has Python %d.%d (%s on %s): bytecode of one cannot be "
                "read by the other; name another interpreter with `python=`, or submit with Python %d.%d"
                % (there + here + (sys.executable, socket.gethostname()) + here)
            )
        # The first is the folder of this file. The others are those of a sender that has the same files.
        sys.path[0:1] = [os.path.join(self.folder, "lib"), os.getcwd()]
        sys.path.extend(one for one in self.facts["path"] if one not in sys.path and os.path.exists(one))
        try:
            with open(os.path.join(self.folder, "call.pkl"), "rb") as file:
                self.call = pickle.load(file)
        except ModuleNotFoundError as error:
            return (
                "the function needs the module `%s`, which %s does not have: send it with `code={'dir': '.'}`, install it "
                "there, or call cloudpickle.register_pickle_by_value(%s) before the submission"
                % (error.name, socket.gethostname(), error.name)
            )
        except Exception as error:
            traceback.print_exc()
            return "the function cannot be read on %s: %s: %s" % (socket.gethostname(), type(error).__name__, error)
        return None

    def checkpoint(self, number: int, _frame: Any) -> None:
        """Asks the function what to call next, and starts that in a job of the same folder. Rank 0 does so for all."""
        signal.signal(number, signal.SIG_IGN)
        name = signal.Signals(number).name
        if self.number != 0:
            return
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
            write(self.folder, "again", b"")
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

    def succeed(self, value: Any) -> int:
        """Writes the value."""
        try:
            payload = dumps(value)
        except Exception as error:
            kind = type(value).__name__
            return self.fail("the result of rank %d (`%s`) cannot be sent: %s" % (self.number, kind, error))
        return self.finish(0, payload=payload)

    def fail(self, what: str, error: Optional[Exception] = None) -> int:
        """Writes what went wrong, also into the log."""
        text, payload = what, b""
        if error is not None:
            # The first frame is that of this file.
            inner = error.__traceback__.tb_next if error.__traceback__ else None
            text = "".join(traceback.format_exception(type(error), error, inner))
            try:
                payload = dumps(error)
            except Exception:
                # The text has what the object would tell.
                payload = b""
        print(text, file=sys.stderr, flush=True)
        return self.finish(1, payload=payload, what=what, traceback=text)

    def finish(self, code: int, **end: Any) -> int:
        """Writes the end of this rank, and returns its exit code."""
        facts = {
            "ok": code == 0,
            "rank": self.number,
            "world": int(os.environ.get("WORLD_SIZE", 0)),
            "host": socket.gethostname(),
            "time": time.time(),
        }
        # Plain values: whoever reads it knows how the rank ended, also where the payload cannot be read.
        write(self.folder, "result-%d.pkl" % self.number, pickle.dumps(dict(facts, **end), protocol=4))
        return code


def dumps(value: Any) -> bytes:
    """Pickles with the cloudpickle that came with the call."""
    return bytes(importlib.import_module("cloudpickle").dumps(value))


def _as_call(following: Any) -> Tuple[Any, Tuple[Any, ...], Dict[str, Any]]:
    """Returns what to call next: a callable, or submitit's ``DelayedSubmission``."""
    if hasattr(following, "function") and hasattr(following, "args") and hasattr(following, "kwargs"):
        return following.function, tuple(following.args), dict(following.kwargs)
    if not callable(following):
        raise TypeError("checkpoint() returned a `%s`, which cannot be called" % type(following).__name__)
    return following, (), {}


def main() -> int:
    """Runs the rank that the environment names."""
    variable = sys.argv[1]
    number = os.environ.get(variable, "")
    if not number.isdigit():
        print("run.py: the environment has no number of a rank in %s" % variable, file=sys.stderr)
        return 2
    return Rank(os.path.dirname(os.path.abspath(__file__)), int(number)).run()


if __name__ == "__main__":
    sys.exit(main())
