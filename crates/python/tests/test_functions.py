"""Functions as jobs."""

import asyncio
import functools
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError, as_completed, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

import weftrun
from support import PATIENCE, in_child
from weftrun._rank import write


def cubed(number: int) -> Tuple[int, int, int]:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), number**3


def run(text: str, home: Path) -> "subprocess.Popen[str]":
    """Runs a program of its own, as a user would."""
    (home / "program.py").write_text(textwrap.dedent(text))
    words = [sys.executable, "program.py"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=home)


def test_each_rank_has_a_result(home: Path) -> None:
    job = weftrun.submit(cubed, 3, nodes=2, backend="local")
    assert job.result(timeout=PATIENCE) == (0, 2, 27)
    assert job.results() == [(0, 2, 27), (1, 2, 27)]
    assert job.exception() is None and job.done() and job.name.startswith("cubed-")
    assert Path(job.folder).parent == home / ".weftrun/functions"
    assert os.stat(job.folder).st_mode & 0o777 == 0o700
    again = pickle.loads(pickle.dumps(job))
    assert again == job and hash(again) == hash(job) and again.results() == job.results()
    assert weftrun.FunctionJob.attach(job.folder).result() == (0, 2, 27)
    job.delete()
    assert not os.path.exists(job.folder)


def test_a_node_calls_it_once_where_that_is_asked_for() -> None:
    def node() -> str:
        return os.environ["NODE_RANK"]

    assert weftrun.submit(node, nodes=2, launch="per-node", backend="local").results(timeout=PATIENCE) == ["0", "1"]


def test_a_function_of_the_program_itself_and_its_exception_come_back(home: Path) -> None:
    child = run(
        """
        import weftrun

        class Diverged(Exception):
            def __init__(self, step: int) -> None:
                super().__init__(step)
                self.step = step

        factor = 7

        def train(step):
            if step == 3:
                raise Diverged(step * factor)
            return step * factor

        if __name__ == "__main__":
            assert weftrun.submit(train, 2, backend="local").result() == 14
            try:
                weftrun.submit(train, step=3, nodes=2, backend="local").result()
            except Diverged as error:
                print("step", error.step)
        """,
        home,
    )
    out, err = child.communicate(timeout=PATIENCE)
    assert out == "step 21\n", err


def test_the_exception_of_the_rank_that_failed_first_is_raised() -> None:
    def fail() -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("bad sample 7")
        time.sleep(600)

    job = weftrun.submit(fail, nodes=2, backend="local")
    with pytest.raises(ValueError, match="bad sample 7") as failed:
        job.results(timeout=PATIENCE)
    assert "in fail\nValueError: bad sample 7" in str(failed.value.__cause__)
    notes = getattr(failed.value, "__notes__", None) or [str(failed.value.__cause__)]
    assert "rank 1 on " in notes[0] and job.handle in "".join(notes)
    assert any("why: " in note and "bad sample 7" in note for note in notes)
    assert job.exception() is failed.value


def test_a_rank_that_dies_and_one_that_is_cancelled() -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    error = weftrun.submit(die, backend="local").exception(timeout=PATIENCE)
    assert isinstance(error, weftrun.errors.FunctionError) and "rank 0 left no result" in str(error)
    job = weftrun.submit(time.sleep, 600, backend="local")
    assert not job.done()
    job.cancel()
    with pytest.raises(CancelledError, match="local://"):
        job.result(timeout=PATIENCE)
    error = weftrun.submit(sys.exit, 3, backend="local").exception(timeout=PATIENCE)
    assert isinstance(error, weftrun.errors.FunctionError) and "sys.exit(3)" in str(error)
    assert weftrun.submit(sys.exit, 0, backend="local").result(timeout=PATIENCE) is None


def test_a_result_that_cannot_travel_is_told() -> None:
    error = weftrun.submit(threading.Lock, backend="local").exception(timeout=PATIENCE)
    assert error is not None and "the result of rank 0 (`lock`) cannot be sent" in str(error)


def test_what_cannot_be_sent_is_told_before_anything_is_sent(home: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(weftrun.errors.UsageError, match="the argument `lock` cannot be sent.*_thread.lock"):
        weftrun.submit(lambda lock: None, lock=lock, backend="local")
    with pytest.raises(weftrun.errors.UsageError, match="the variable `lock`, which it uses, cannot be sent"):
        weftrun.submit(lambda: lock.locked(), backend="local")
    with pytest.raises(weftrun.errors.UsageError, match="did you mean `gpus_per_node`"):
        weftrun.submit(cubed, 3, gpus_per_nod=8, backend="local")
    with pytest.raises(weftrun.errors.UsageError, match="functools.partial"):
        weftrun.submit(lambda nodes: nodes, nodes=2, backend="local")
    with pytest.raises(weftrun.errors.UsageError, match="has no `command`"):
        weftrun.submit(cubed, 3, command=["true"], backend="local")
    with pytest.raises(weftrun.errors.InvalidSpecError):
        weftrun.submit(cubed, 3, name="No Label", backend="local")
    assert weftrun.jobs("local", all=True) == []
    assert [path.name for path in (home / ".weftrun/functions").iterdir()] == [".gitignore"]


def test_a_parameter_with_the_name_of_a_key_is_bound_or_in_the_spec() -> None:
    def nodes_of(nodes: int) -> int:
        return nodes

    job = weftrun.submit(functools.partial(nodes_of, 5), job={"nodes": 2}, backend="local")
    assert job.results(timeout=PATIENCE) == [5, 5]


def test_pods_need_a_folder_that_is_mounted(home: Path) -> None:
    with pytest.raises(weftrun.errors.UsageError, match="(?s)see no folder of this machine.*folder=.*volumes="):
        weftrun.submit(cubed, 3, image="python:3.11", backend="kubeflow")
    with pytest.raises(weftrun.errors.UsageError, match="(?s)no volume of the job is mounted there.*folder_there="):
        weftrun.submit(
            cubed, 3, image="python:3.11", backend="runai", folder=home / "f", volumes={"a": {"mount": "/fsx", "claim": "a"}}
        )


def test_a_folder_in_which_others_may_write_is_refused(home: Path) -> None:
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    with pytest.raises(weftrun.errors.UsageError, match="others may write"):
        weftrun.submit(cubed, 3, folder="open", backend="local")


def test_results_of_others_and_links_are_refused(home: Path) -> None:
    job = weftrun.submit(cubed, 3, backend="local")
    job.wait(timeout=PATIENCE)
    result = Path(job.folder) / "result-0.pkl"
    real = result.rename(home / "real")
    result.symlink_to(real)
    with pytest.raises(weftrun.errors.InputOutputError, match="result-0.pkl cannot be read.*links"):
        job.result()
    result.unlink()
    result.write_bytes(real.read_bytes())
    result.chmod(0o666)
    with pytest.raises(weftrun.errors.InputOutputError, match="others may write it"):
        job.result()
    result.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(result, 65534, 65534)
        with pytest.raises(weftrun.errors.InputOutputError, match="belongs to another user"):
            job.result()
        os.chown(result, 0, 0)
    assert job.result() == (0, 1, 27)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_root_in_a_container_gives_its_files_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    write(str(tmp_path), "result-0.pkl", b"x")
    assert [(path.name, path.stat().st_uid) for path in tmp_path.iterdir()] == [("result-0.pkl", 65534)]


def test_another_version_of_python_is_told() -> None:
    fake = Path("fake.py")
    # An interpreter of another version, as far as the rank can see.
    fake.write_text(
        f"#!{sys.executable}\nimport runpy, sys\nsys.version_info = (3, 8, 1)\nsys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    fake.chmod(0o755)
    error = weftrun.submit(cubed, 3, python=str(fake.resolve()), backend="local").exception(timeout=PATIENCE)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert error is not None and f"sent by Python {here}, and this rank has Python 3.8" in str(error)


def test_without_cloudpickle_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(weftrun.errors.MissingPackageError, match=r"pip install \"weftrun\[functions\]\""):
        weftrun.submit(cubed, 3, backend="local")


class Training:
    """Counts, and is told in between that its time is over."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, last: int) -> List[int]:
        seen = [self.step]
        while self.step < last:
            self.step += 1
            if self.step == 2:
                os.kill(os.getpid(), signal.SIGUSR2)
        return [*seen, self.step]

    def checkpoint(self, last: int) -> Callable[[], List[int]]:
        return functools.partial(self, last)


def test_a_checkpoint_starts_the_call_again_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weftrun")
    job = weftrun.submit(Training(), 4, backend="local")
    first, other = job.handle, pickle.loads(pickle.dumps(job))
    assert job.result(timeout=PATIENCE) == [2, 4]
    assert job.handle != first and "wrote a checkpoint" in caplog.text
    # Who waited elsewhere goes on with the same job.
    assert other.result(timeout=PATIENCE) == [2, 4] and other.handle == job.handle
    assert len(weftrun.jobs("local", all=True)) == 2


def test_checkpoints_have_a_limit() -> None:
    class Endless:
        def __call__(self) -> None:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(600)

        def checkpoint(self) -> "Endless":
            return self

    error = weftrun.submit(Endless(), restarts=1, backend="local").exception(timeout=PATIENCE)
    assert error is not None and "started again 1 times, which is the limit" in str(error)


def test_an_executor_maps_twenty() -> None:
    with weftrun.Executor("local", max_jobs=4) as executor:
        assert list(executor.map(pow, range(20), [2] * 20, timeout=PATIENCE)) == [number**2 for number in range(20)]
    assert len(weftrun.jobs("local", all=True)) == 20


def test_the_futures_are_futures() -> None:
    with weftrun.Executor("local") as executor:
        good, bad = executor.submit(divmod, 7, 2), executor.submit(divmod, 7, 0)
        assert set(as_completed([good, bad], timeout=PATIENCE)) == {good, bad}
        assert good.result() == (3, 1) and isinstance(bad.exception(), ZeroDivisionError)
        assert good.job is not None and good.job.result() == (3, 1)
        refused = executor.submit(pow, 2, 2)
        assert wait([refused], timeout=PATIENCE).done == {refused}
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 2)
    with pytest.raises(TypeError, match="did you mean `nodes`"):
        weftrun.Executor("local", node=2)


def test_no_more_jobs_than_allowed_run_and_waiting_calls_can_be_cancelled(home: Path) -> None:
    def until(name: str) -> None:
        while not os.path.exists(name):
            time.sleep(0.05)

    executor = weftrun.Executor("local", max_jobs=1)
    first, second = executor.submit(until, str(home / "go")), executor.submit(pow, 2, 2)
    while not first.running():
        time.sleep(0.02)
    assert not second.running() and second.cancel() and not first.cancel()
    third = executor.submit(pow, 3, 2)
    executor.shutdown(wait=False, cancel_futures=True)
    assert third.cancelled()
    (home / "go").touch()
    assert first.result(timeout=PATIENCE) is None
    assert len(weftrun.jobs("local", all=True)) == 1


def test_an_error_of_the_thread_is_that_of_every_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> bool:
        raise MemoryError("no memory")

    monkeypatch.setattr(weftrun.Executor, "_collect", broken)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    executor = weftrun.Executor("local", max_jobs=1)
    first, second = executor.submit(pow, 2, 2), executor.submit(pow, 2, 2)
    assert isinstance(first.exception(timeout=PATIENCE), MemoryError) and second.cancelled()
    executor.shutdown()


def test_the_cluster_may_not_answer_for_a_while(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    asked, ask = [0], weftrun.Executor._phases

    def flaky(executor: weftrun.Executor) -> Dict[str, str]:
        asked[0] += 1
        if asked[0] < 4:
            raise weftrun.errors.UnreachableError({"message": "no answer", "retryable": True})
        return ask(executor)

    monkeypatch.setattr(weftrun.Executor, "_phases", flaky)
    with weftrun.Executor("local") as executor:
        future = executor.submit(pow, 2, 3)
        assert future.result(timeout=PATIENCE) == 8
        # Its handle is that of the list, so that one question serves all jobs.
        assert future.job is not None and future.job.handle in ask(executor)
    assert caplog.text.count("the jobs cannot be listed") == 1


def test_an_executor_serves_in_a_forked_child() -> None:
    executor = weftrun.Executor("local")
    mine = executor.submit(pow, 2, 5)

    def work() -> None:
        with executor:
            assert executor.submit(pow, 2, 6).result(timeout=PATIENCE) == 64
        assert weftrun.submit(pow, 2, 7, backend="local").result(timeout=PATIENCE) == 128

    assert in_child(work) == 0
    assert mine.result(timeout=PATIENCE) == 32
    executor.shutdown()


def test_ctrl_c_leaves_the_jobs_and_names_them(home: Path) -> None:
    child = run(
        """
        import time, weftrun
        with weftrun.Executor("local", max_jobs=1) as executor:
            first = executor.submit(time.sleep, 600)
            executor.submit(time.sleep, 600)
            while not (first.running() and first.job):
                time.sleep(0.02)
            print(first.job.handle, flush=True)
            first.result()
        """,
        home,
    )
    assert child.stdout is not None
    handle = child.stdout.readline().strip()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in err and "1 calls were cancelled before they were submitted" in err
    assert "1 jobs go on; `weftrun cancel HANDLE` ends one" in err and handle in err
    job = weftrun.attach(handle)
    assert job.describe()["phase"] == "running"
    job.cancel()


def test_a_program_that_ends_says_what_goes_on(home: Path) -> None:
    child = run(
        """
        import time, weftrun
        future = weftrun.Executor("local").submit(time.sleep, 600)
        while not (future.running() and future.job):
            time.sleep(0.02)
        print(future.job.handle)
        """,
        home,
    )
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0 and "1 jobs go on" in err and out.strip() in err
    weftrun.attach(out.strip()).cancel()


def test_jobs_and_logs_are_awaited() -> None:
    async def both() -> Dict[str, Any]:
        job = weftrun.submit(print, "hello", backend="local")
        lines = [str(line) async for line in job.logs() if not line.is_notice]
        status = await job
        return {"lines": lines, "phase": status.phase, "result": job.result()}

    assert asyncio.run(both()) == {"lines": ["hello"], "phase": "succeeded", "result": None}
