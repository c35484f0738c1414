"""Functions on a real Slurm cluster: ``test-cluster/slurm/up.sh DIR``, then ``WEFTRUN_TEST_SLURM=DIR .ci/python``."""

import os
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Iterator, Tuple

import pytest

import weftrun

cloudpickle = pytest.importorskip("cloudpickle")
CLUSTER = os.environ.get("WEFTRUN_TEST_SLURM")

pytestmark = pytest.mark.skipif(CLUSTER is None, reason="WEFTRUN_TEST_SLURM names no cluster")

#: A requeued job begins two minutes later.
PATIENCE = 420


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that all nodes see, with the package in it: users of the cluster do not see that of the test."""
    folder = Path(CLUSTER or "") / "home/researcher/python"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for package in (weftrun, cloudpickle):
        assert package.__file__ is not None
        shutil.copytree(Path(package.__file__).parent, folder / "site" / package.__name__)
    for path in [folder, *folder.rglob("*")]:
        owner = folder.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
    yield folder
    shutil.rmtree(folder)


def run(shared: Path, text: str) -> Tuple[str, str]:
    """Runs a program as a user on the head node."""
    (shared / "program.py").write_text(textwrap.dedent(text))
    words = [f"{CLUSTER}/bin/clusterctl", "head", "env", f"PYTHONPATH={shared}/site", "/usr/bin/python3", "program.py"]
    done = subprocess.run(words, cwd=shared, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_a_function_on_two_nodes(shared: Path) -> None:
    out, _ = run(
        shared,
        """
        import os, socket, weftrun

        def where(word):
            return word, os.environ["RANK"], os.environ["WORLD_SIZE"], socket.gethostname()

        def fail():
            if os.environ["RANK"] == "1":
                raise ValueError("bad sample 7")
            import time; time.sleep(300)

        job = weftrun.submit(where, "here", nodes=2, backend="slurm")
        results = job.results(timeout=120)
        assert [one[:3] for one in results] == [("here", "0", "2"), ("here", "1", "2")], results
        assert len({one[3] for one in results}) == 2, results
        print(*results)
        job = weftrun.submit(fail, nodes=2, backend="slurm")
        try:
            job.result(timeout=120)
        except ValueError as error:
            print(repr(error), *getattr(error, "__notes__", []), str(error.__cause__), sep="\\n")
        with weftrun.Executor("slurm", nodes=1, max_jobs=2) as executor:
            print(list(executor.map(pow, range(4), [2] * 4)))
        """,
    )
    print(out)
    assert "ValueError('bad sample 7')" in out and "rank 1 on " in out and "why: " in out
    assert out.endswith("[0, 1, 4, 9]\n")


def test_a_checkpoint_before_the_time_limit_is_requeued(shared: Path) -> None:
    out, err = run(
        shared,
        """
        import logging, os, time, weftrun
        logging.basicConfig(level=logging.INFO)

        class Training:
            step = 0
            def __call__(self):
                first = self.step
                while self.step < 3 or os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
                    time.sleep(1)
                    self.step += 1
                return first, self.step, os.environ["SLURM_JOB_ID"], os.environ["SLURM_RESTART_COUNT"]
            def checkpoint(self):
                return self

        job = weftrun.submit(Training(), nodes=2, time_limit="1m", backend="slurm",
                             job={"backend": {"slurm": {"signal": "USR2@50"}}})
        print(*job.results())
        for line in job.logs(follow=False):
            print(line)
        """,
    )
    print(out, err)
    steps, text = out.split("\n", 1)
    assert "SIGUSR2: checkpoint 1 is written; the job starts again" in text
    # It went on where it was, under the same number.
    assert "'1') (" in steps and not steps.startswith("(0,"), steps
