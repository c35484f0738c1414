"""What the tests share."""

import os
import signal
import time
from pathlib import Path
from typing import Callable

from weftrun import JobSpec

#: The repository: captures and recorded failures.
CASES = Path(os.environ["WEFTRUN_CASES"])


#: How long a child or a job may take that does not hang.
PATIENCE = 120


def job(name: str, script: str, nodes: int = 1) -> JobSpec:
    return {"name": name, "nodes": nodes, "command": ["sh", "-c", script]}


def in_child(work: Callable[[], None]) -> int:
    """Forks, works in the child, and returns its exit code; a child that hangs is ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
