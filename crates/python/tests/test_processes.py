"""Forked processes, threads and Ctrl-C."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import List, Optional, Tuple

import pytest

import weftrun
from support import PATIENCE, in_child, job


def submitted(number: int) -> Tuple[str, str]:
    made = weftrun.submit(job(f"pool-{number}", f"echo {number} >> ran"), backend="local")
    return made.handle, made.wait(timeout=PATIENCE).phase


def test_every_job_of_a_pool_runs(home: Path) -> None:
    # The parent has used weftrun: the children inherit its memory, and none of its threads.
    assert weftrun.jobs("local", all=True) == []
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(4, mp_context=fork) as pool:
        answers = list(pool.map(submitted, range(8), timeout=PATIENCE))
    assert {phase for _, phase in answers} == {"succeeded"}
    assert len({handle for handle, _ in answers}) == 8
    assert sorted((home / "ran").read_text().split()) == [str(number) for number in range(8)]
    assert len(weftrun.jobs("local", all=True)) == 8


def test_ids_differ_where_the_first_is_drawn_after_the_fork(home: Path) -> None:
    weftrun.submit(job("warm", "true"), backend="local").wait(timeout=PATIENCE)

    def work() -> None:
        made = weftrun.submit(job(f"child-{os.getpid()}", "true"), backend="local")
        (home / str(os.getpid())).write_text(made.handle.rsplit("#", 1)[1])

    assert [in_child(work) for _ in range(3)] == [0, 0, 0]
    drawn = [path.read_text() for path in home.iterdir() if path.name.isdigit()]
    assert len(set(drawn)) == 3, drawn


def test_a_job_and_a_plan_of_the_parent_serve_in_a_child(home: Path) -> None:
    made = weftrun.submit(job("parent", "echo up; sleep 1; exit 3"), backend="local")
    planned = weftrun.plan(job("planned", "echo x >> once"), "local", online=True)
    lines = made.logs()

    def work() -> None:
        assert made.wait(timeout=PATIENCE).exit_code == 3
        assert [str(line) for line in made.logs() if not line.is_notice] == ["up"]
        with pytest.raises(weftrun.errors.UsageError, match="forked"):
            next(lines)
        planned.submit().wait(timeout=PATIENCE)

    assert in_child(work) == 0
    # The child has taken nothing from the parent, and the plan is one job.
    assert made.wait(timeout=PATIENCE).exit_code == 3
    assert [str(line) for line in lines if not line.is_notice] == ["up"]
    assert planned.submit().wait(timeout=PATIENCE).succeeded
    assert (home / "once").read_text() == "x\n"


def test_a_job_and_an_error_can_be_pickled() -> None:
    made = weftrun.submit(job("pickled", "true"), backend="local")
    again = pickle.loads(pickle.dumps(made))
    assert again == made and hash(again) == hash(made) and again.name == "pickled"
    assert again.wait(timeout=PATIENCE).succeeded
    with pytest.raises(weftrun.errors.NotFoundError) as missing:
        weftrun.attach("local://local/none#x")
    copy = pickle.loads(pickle.dumps(missing.value))
    assert type(copy) is weftrun.errors.NotFoundError and str(copy) == str(missing.value)
    interrupted = pickle.loads(pickle.dumps(weftrun.errors.SubmissionInterrupted("a://b/c")))
    assert interrupted.handle == "a://b/c" and "a://b/c" in str(interrupted)


SUBMIT = """
import json, sys
import weftrun
print("ready", flush=True)
told = None
try:
    job = weftrun.submit({"name": sys.argv[1], "command": ["true"]}, backend="local")
    told = job.handle
except KeyboardInterrupt as interrupt:
    told = getattr(interrupt, "handle", None)
    assert told is None or told in str(interrupt)
print(json.dumps(told))
"""


@pytest.mark.parametrize("delay", [n * 0.004 for n in range(30)])
def test_ctrl_c_during_a_submit_names_the_job(delay: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, "interrupted"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=PATIENCE)
    exist: List[Optional[str]] = [one.handle for one in weftrun.jobs("local", all=True)]
    if out:
        assert [json.loads(out)] == (exist or [None]), err
    else:
        # Before the `try`, or after the last line: nothing was caught.
        assert "KeyboardInterrupt" in err


def test_ctrl_c_interrupts_and_the_job_goes_on() -> None:
    program = textwrap.dedent(
        """
        import weftrun
        job = weftrun.submit({"name": "ctrl", "command": ["sleep", "600"]}, backend="local")
        print(job.handle, flush=True)
        try:
            job.wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    handle = child.stdout.readline().strip()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.stdout.read() == "interrupted\n" and child.wait(timeout=30) == 0
    job_of_the_child = weftrun.attach(handle)
    assert job_of_the_child.describe()["phase"] == "running"
    job_of_the_child.cancel()
    job_of_the_child.wait(timeout=60)
