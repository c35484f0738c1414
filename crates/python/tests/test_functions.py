"""Functions as jobs."""

import asyncio
import atexit
import functools
import logging
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

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

    job = weftrun.submit(node, nodes=2, gpus_per_node=2, launch="per-node", backend="local")
    assert job.results(timeout=PATIENCE) == ["0", "1"]


@pytest.mark.parametrize("size", ["4", ""])
def test_a_function_may_change_the_environment(size: str) -> None:
    def change() -> None:
        os.environ["WORLD_SIZE"] = size

    assert weftrun.submit(change, backend="local").results(timeout=PATIENCE) == [None]


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


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, Unprintable])
def test_every_kind_of_exception_is_told(kind: Callable[[], BaseException]) -> None:
    def fail() -> None:
        raise kind()

    error = weftrun.submit(fail, backend="local").exception(timeout=PATIENCE)
    assert isinstance(error, (weftrun.errors.FunctionError, Unprintable))
    assert getattr(kind, "__name__") in str(error.__cause__) and "in fail" in str(error.__cause__)


def test_a_result_that_the_disk_has_no_room_for_is_told() -> None:
    def large() -> bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        return bytes(100_000)

    error = weftrun.submit(large, backend="local").exception(timeout=PATIENCE)
    assert error is not None and "the result of rank 0 cannot be written: [Errno 27]" in str(error)


def test_what_returned_is_there_whatever_follows(caplog: pytest.LogCaptureFixture) -> None:
    def crash() -> None:
        atexit.register(os._exit, 3)

    def die() -> str:
        other = os.path.join(os.path.dirname(sys.argv[0]), "result-0.pkl")
        while os.environ["RANK"] == "1":
            if os.path.exists(other):
                os.kill(os.getpid(), signal.SIGKILL)
        return "0"

    assert weftrun.submit(crash, backend="local").results(timeout=PATIENCE) == [None]
    assert "each rank returned, and then local://" in caplog.text and " failed: why: exit code 3" in caplog.text
    job = weftrun.submit(die, nodes=2, backend="local")
    error = job.exception(timeout=PATIENCE)
    assert error is not None and "rank 1 left no result" in str(error) and "returned()" in str(error)
    assert "does each node see" not in str(error) and job.returned() == {0: "0"}


def test_only_the_values_that_are_asked_for_are_read(home: Path) -> None:
    (home / "only_there.py").write_text("class Value: pass\n")

    def value() -> Any:
        if os.environ["RANK"] == "0":
            return 42
        sys.path.insert(0, os.environ["ONLY_THERE"])
        import only_there  # type: ignore[import-not-found]

        return only_there.Value()

    job = weftrun.submit(value, nodes=2, env={"ONLY_THERE": str(home)}, backend="local")
    assert job.result(timeout=PATIENCE) == 42
    with pytest.raises(weftrun.errors.FunctionError, match="what rank 1 of local://.* cannot be read here: .*only_there"):
        job.results()


def test_a_deleted_job_can_be_deleted_again() -> None:
    job = weftrun.submit(cubed, 3, backend="local")
    job.wait(timeout=PATIENCE)
    weftrun.attach(job.handle).delete()
    job.delete()
    assert not os.path.exists(job.folder)
    job.delete()
    with pytest.raises(weftrun.errors.NotFoundError, match="not the folder of a submitted function"):
        weftrun.FunctionJob.attach(job.folder)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_job_that_was_submitted_is_named_whatever_is_raised(raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(*words: Any) -> None:
        monkeypatch.setattr(weftrun._functions, "_keep", real)
        raise raised

    real = weftrun._functions._keep
    monkeypatch.setattr(weftrun._functions, "_keep", keep)
    with pytest.raises((weftrun.errors.SubmissionInterrupted, weftrun.errors.InputOutputError)) as told:
        weftrun.submit(cubed, 3, backend="local")
    job = weftrun.jobs("local", all=True)[0]
    assert f"the job was submitted: {job.handle}" in str(told.value)
    folder = next((Path(".weftrun/functions").resolve()).glob("[!.]*"))
    assert str(folder) in str(told.value) and str(folder) in str(pickle.loads(pickle.dumps(told.value)))
    assert weftrun.FunctionJob.attach(folder).result(timeout=PATIENCE) == (0, 1, 27)


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

    async def later() -> None: ...

    with pytest.raises(weftrun.errors.UsageError, match="(?s)`async def`.*asyncio.run"):
        weftrun.submit(functools.partial(later), backend="local")
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


def test_a_full_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise shutil.Error([("a", "b", "No space left on device")] * 9)

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(weftrun.errors.InputOutputError, match="the call cannot be written to .*: No space left on device$"):
        weftrun.submit(cubed, 3, backend="local")


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

    def __init__(self, *signalled: int) -> None:
        self.step, self.signalled = 0, signalled

    def __call__(self, last: int) -> List[int]:
        seen = [self.step]
        while self.step < last:
            self.step += 1
            if self.step in self.signalled:
                self.signal()
        return [*seen, self.step]

    def signal(self) -> None:
        os.kill(os.getpid(), signal.SIGUSR2)

    def checkpoint(self, last: int) -> Optional[Callable[[], List[int]]]:
        return functools.partial(self, last)


@pytest.mark.parametrize("call", [functools.partial(Training(2, 3)), functools.partial(Training(2, 3), 4)])
def test_a_checkpoint_starts_the_call_again_where_it_was(
    call: "functools.partial[List[int]]", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "weftrun")
    job = weftrun.submit(call, *([] if call.args else [4]), backend="local")
    first, other = job.handle, pickle.loads(pickle.dumps(job))
    assert job.result(timeout=PATIENCE) == [3, 4]
    assert job.handle != first and "wrote a checkpoint" in caplog.text
    # Who waited elsewhere goes on with the same job.
    assert other.result(timeout=PATIENCE) == [3, 4] and other.handle == job.handle
    assert len(weftrun.jobs("local", all=True)) == 3


def test_all_who_wait_go_on_with_one_job() -> None:
    jobs: List[weftrun.FunctionJob[List[int]]] = [weftrun.submit(Training(2), 4, backend="local")]
    jobs = jobs * 2 + [weftrun.FunctionJob.attach(jobs[0].folder)] * 2
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda job: job.result(PATIENCE), jobs)) == [[2, 4]] * 4
    assert len(weftrun.jobs("local", all=True)) == 2


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), weftrun.errors.UnreachableError({"retryable": True})])
def test_a_checkpoint_outlives_a_failed_submission(raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any, **__: Any) -> weftrun.Plan:
        monkeypatch.undo()
        raise raised

    home = os.getcwd()
    job = weftrun.submit(Training(2), 4, backend="local", folder=home)
    monkeypatch.setattr(type(job._client), "plan", plan)
    with pytest.raises(type(raised)):
        job.result(timeout=PATIENCE)
    assert job.result(timeout=PATIENCE) == [2, 4]


def test_a_job_that_was_attached_before_a_checkpoint_is_the_newest() -> None:
    class Long(Training):
        def checkpoint(self, last: int) -> Any:
            return functools.partial(time.sleep, 600)

    job = weftrun.submit(Long(2), 4, backend="local")
    other, idle = (weftrun.FunctionJob.attach(job.folder) for _ in range(2))
    with pytest.raises(weftrun.errors.TimedOutError):
        job.wait(timeout=5)
    first = other.handle
    assert idle.describe()["job"]["handle"] == job.handle != first
    other.cancel()
    with pytest.raises(CancelledError, match=re.escape(job.handle)):
        job.result(timeout=PATIENCE)


def test_a_job_that_is_cancelled_is_not_started_again() -> None:
    job = weftrun.submit(Training(2), 4, backend="local")
    weftrun.attach(job.handle).wait(timeout=PATIENCE)
    job.cancel()
    with pytest.raises((CancelledError, weftrun.errors.FunctionError)):
        job.result(timeout=PATIENCE)
    assert len(weftrun.jobs("local", all=True)) == 1


def test_a_signal_is_for_the_process_of_the_rank_alone() -> None:
    class Loader(Training):
        def signal(self) -> None:
            worker = os.fork()
            if worker == 0:
                os.kill(os.getpid(), signal.SIGUSR2)
                os._exit(7)
            self.worker = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])

        def __call__(self, last: int) -> List[int]:
            return [*super().__call__(last), self.worker]

    assert weftrun.submit(Loader(2), 4, backend="local").result(timeout=PATIENCE) == [0, 4, 7]


def test_a_signal_is_answered_again_after_no_answer() -> None:
    class Twice(Training):
        asked = 0

        def checkpoint(self, last: int) -> Optional[Callable[[], List[int]]]:
            self.asked += 1
            return functools.partial(self, last) if self.asked == 2 else None

    assert weftrun.submit(Twice(2, 3), 4, backend="local").result(timeout=PATIENCE) == [3, 4]


def signalled(value: Any) -> Any:
    if "RANK" in os.environ:
        os.kill(os.getpid(), signal.SIGUSR2)
    return value


class Signalling:
    """An object whose pickling is signalled on a rank, and whose reading is signalled there."""

    def __reduce__(self) -> Tuple[Any, ...]:
        return signalled, (signalled(7),)


def test_a_signal_before_or_after_the_function_loses_nothing() -> None:
    class Slow(Training):
        before: Any = None

        def __call__(self, last: int) -> Any:
            return self.before, Signalling()

    job = weftrun.submit(Slow(), 1, backend="local")
    first = job.handle
    assert job.result(timeout=PATIENCE) == (None, 7) and job.handle == first
    # A signal that came while the call was read is answered when it runs.
    early = Slow()
    early.before = Signalling()
    job = weftrun.submit(early, 1, restarts=0, backend="local")
    error = job.exception(timeout=PATIENCE)
    assert error is not None and "started again 0 times, which is the limit" in str(error)


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
    assert "KeyboardInterrupt" in err and "calls that were cancelled before they were submitted: 1" in err
    assert "jobs that go on: 1; `weftrun cancel HANDLE` ends one" in err and handle in err
    job = weftrun.attach(handle)
    assert job.describe()["phase"] == "running"
    job.cancel()


def test_the_futures_end_after_ctrl_c_and_each_ctrl_c_may_be_followed_by_another(home: Path) -> None:
    child = run(
        """
        import os, time, weftrun
        def until():
            while not os.path.exists("go"):
                time.sleep(0.05)
            return 7
        def again(call):
            raise KeyboardInterrupt
        executor = weftrun.Executor("local", max_jobs=1)
        first, second = executor.submit(until), executor.submit(until)
        while not first.job:
            time.sleep(0.02)
        weftrun._functions.Call.discard = again
        try:
            with executor:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            open("go", "w").close()
        print(first.job.handle, first.result(timeout=60), second.cancelled())
        """,
        home,
    )
    out, err = child.communicate(timeout=PATIENCE)
    handle = out.split()[0]
    assert out.split()[1:] == ["7", "True"] and err.count(handle) == 1 and "jobs that go on: 1" in err, err


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
    assert child.returncode == 0 and "jobs that go on: 1" in err and out.strip() in err
    weftrun.attach(out.strip()).cancel()


def test_jobs_and_logs_are_awaited() -> None:
    async def both() -> Dict[str, Any]:
        job = weftrun.submit(print, "hello", backend="local")
        lines = [str(line) async for line in job.logs() if not line.is_notice]
        status = await job
        return {"lines": lines, "phase": status.phase, "result": job.result()}

    assert asyncio.run(both()) == {"lines": ["hello"], "phase": "succeeded", "result": None}
