"""The installed package: jobs on this machine, files, errors."""

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import List

import pytest

import weftrun
from support import CASES, job

CAPTURE = CASES / "crates/diagnose/tests/cases/nccl/captures/four_nodes"
FAILURE = CASES / "tests/cases/failures/exception"


def test_a_job_is_submitted_followed_and_waited_for() -> None:
    script = "printf 'one\\ntwo\\n'; printf '\\377 three'"
    made = weftrun.submit(job("lines", script), backend="local")
    lines = [line for line in made.logs() if not line.is_notice]
    assert [line.bytes for line in lines] == [b"one", b"two", b"\xff three"]
    assert str(lines[2]) == "\ufffd three"
    status = made.wait()
    assert status.succeeded and status.exit_code == 0 and status.why is None
    again = weftrun.attach(made.handle)
    assert again.wait().succeeded
    assert again.describe()["name"] == "lines"
    listed = [one.handle for one in weftrun.jobs("local", all=True)]
    assert listed == [made.handle]
    made.delete()
    assert weftrun.jobs("local", all=True) == []


def test_jobs_are_selected_by_labels() -> None:
    for name, team in [("ours", "nlp"), ("theirs", "vision")]:
        spec = job(name, "true")
        spec["labels"] = {"team": team}
        weftrun.submit(spec, backend="local").wait()
    chosen = weftrun.jobs("local", all=True, labels={"team": "nlp"})
    assert [one.name for one in chosen] == ["ours"]
    assert chosen[0].summary is not None and chosen[0].summary["labels"] == {"team": "nlp"}
    for one in weftrun.jobs("local", all=True):
        one.delete()


def test_a_failed_job_says_why() -> None:
    # Where a traceback begins matters, so that it is printed by a real interpreter.
    program = "def load():\n    raise ValueError('bad sample')\nload()\n"
    made = weftrun.submit(
        {"name": "fails", "nodes": 1, "command": [sys.executable, "-c", program]}, backend="local"
    )
    status = made.wait(timeout=60)
    assert status.phase == "failed" and status.exit_code == 1
    why = made.why()
    assert why.state == "failed" and why.cause is not None
    assert "bad sample" in why.cause["what"] and "bad sample" in str(why)
    assert "bad sample" in why._repr_html_()


def test_a_plan_changes_nothing_and_is_submitted_once(home: Path) -> None:
    plan = weftrun.plan(job("once", "echo x >> ran"), backend="local")
    assert "once" in repr(plan) and "<table>" in plan._repr_html_()
    first, second = plan.submit(), plan.submit()
    assert first.handle == second.handle
    first.wait(timeout=60)
    assert (home / "ran").read_text() == "x\n"


def test_a_handle_that_was_not_seen_is_told_first(home: Path) -> None:
    spec = job("once", "echo x >> ran")
    made = weftrun.submit(spec, backend="local")
    made.wait()
    # As it is after a kill between the answer and the output.
    (record,) = home.rglob("journal/*.json")
    data = json.loads(record.read_text())
    data["undelivered"] = True
    data["owner"]["started"] = 1
    record.write_text(json.dumps(data))
    with pytest.raises(weftrun.errors.AlreadyExistsError) as told:
        weftrun.submit(spec, backend="local")
    assert made.handle in str(told.value)
    assert (home / "ran").read_text() == "x\n"
    weftrun.submit(spec, backend="local").wait()
    assert (home / "ran").read_text() == "x\nx\n"


def test_a_job_file_is_read_by_its_path(home: Path) -> None:
    (home / "job.toml").write_text('name = "file"\ncommand = ["true"]\n')
    assert weftrun.plan(home / "job.toml", "local").data["name"] == "file"
    assert "true" in "".join(weftrun.plan("job.toml", "local").render().values())


def test_errors_are_exceptions_of_their_kind() -> None:
    with pytest.raises(weftrun.errors.InvalidSpecError) as wrong:
        weftrun.plan({"name": "x", "nodez": 2, "command": ["true"]}, "local")  # type: ignore[arg-type]
    assert any("nodes" in str(finding) for finding in wrong.value.findings)
    with pytest.raises(weftrun.errors.NotFoundError):
        weftrun.attach("local://local/none").describe()
    with pytest.raises(LookupError):
        weftrun.transport("/nowhere")
    with pytest.raises(weftrun.errors.UsageError, match="did you mean `efa`"):
        weftrun.transport(CAPTURE, fabric="eff")
    assert issubclass(weftrun.errors.TimedOutError, weftrun.Error)


def test_wait_gives_up_and_the_job_goes_on() -> None:
    made = weftrun.submit(job("long", "sleep 600"), backend="local")
    with pytest.raises(TimeoutError):
        made.wait(timeout=0.2)
    made.cancel()
    assert made.wait(timeout=60).phase == "cancelled"


def test_transports_and_causes_of_files() -> None:
    seen = weftrun.transport([CAPTURE], fabric="efa")
    assert seen.ok is False and len(seen.pairs) == 4 and seen.verdict["fabric"] == "socket"
    assert [finding.code for finding in seen.findings][0].startswith("NCCL-")
    assert "NET/Socket" in seen._repr_html_()
    why = weftrun.why(FAILURE)
    assert why.state == "failed" and why.ranks == [3]


def test_hostile_text_is_escaped_in_notebooks(home: Path) -> None:
    (home / "a.log").write_text("rank0: ValueError: <script>alert(1)</script>\n")
    html = weftrun.why(home / "a.log")._repr_html_() + weftrun.transport(home / "a.log")._repr_html_()
    assert "<script>" not in html


def test_a_manifest_is_mutated_and_a_foreign_one_is_kept() -> None:
    manifest = textwrap.dedent(
        """\
        # ours
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        metadata: {name: train}
        spec:
          pytorchReplicaSpecs:
            Worker:
              replicas: 2
              template:
                spec:
                  containers:
                    - name: pytorch
                      image: example/train
                      resources: {limits: {nvidia.com/gpu: 8, memory: 900Gi}}
        """
    )
    done = weftrun.mutate(manifest, profile="dgxc")
    assert done.changed and "vpc.amazonaws.com/efa" in done.text and done.text.startswith("# ours\n")
    assert weftrun.mutate(done.text, profile="dgxc").text == done.text
    kept = weftrun.mutate(manifest)
    assert kept.text == manifest and not kept.changed
    with pytest.raises(weftrun.errors.InvalidSpecError):
        weftrun.mutate("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: [")
    with pytest.raises(weftrun.Error):
        weftrun.mutate(manifest, profile="none")


def test_logs_are_read_with_async_for() -> None:
    async def read() -> List[str]:
        made = weftrun.submit(job("async", "echo a; echo b"), backend="local")
        return [str(line) async for line in made.logs() if not line.is_notice]

    assert asyncio.run(read()) == ["a", "b"]


def test_a_cancelled_async_read_loses_no_line() -> None:
    async def read() -> List[str]:
        made = weftrun.submit(job("cancelled", "sleep 1; echo a; sleep 1; echo b"), backend="local")
        logs = made.logs()
        lines: List[str] = []
        while True:
            try:
                line = await asyncio.wait_for(logs.__anext__(), 0.1)
            except asyncio.TimeoutError:
                continue
            except StopAsyncIteration:
                return lines
            if not line.is_notice:
                lines.append(str(line))

    assert asyncio.run(read()) == ["a", "b"]


def test_other_threads_run_while_a_job_is_waited_for() -> None:
    made = weftrun.submit(job("threads", "sleep 1"), backend="local")
    counted = 0
    over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0.01)

    thread = threading.Thread(target=count)
    thread.start()
    made.wait(timeout=60)
    over.set()
    thread.join()
    assert counted > 20


def test_the_program_is_on_path() -> None:
    ran = subprocess.run(["weftrun", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("weftrun ")


def test_a_notebook_shows_phases_causes_and_a_matrix() -> None:
    program = "raise ValueError('<b>bad sample</b>')"
    made = weftrun.submit({"name": "html", "command": [sys.executable, "-c", program]}, backend="local")
    html = made.wait(timeout=60)._repr_html_()
    assert "color" in html and "failed" in html and "ValueError" in html and "<b>bad" not in html
    matrix = weftrun.transport([CAPTURE])._repr_html_()
    assert "from / to" in matrix and "rank 3" in matrix
