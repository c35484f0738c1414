"""Clients, and the operations that the command line has too."""

import json
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

import weftrun
from support import CASES, job

ELSEWHERE = '[target.lab]\nbackend = "local"\n[job.labels]\nteam = "nlp"\n'


def test_a_client_has_its_own_configuration_and_environment(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(ELSEWHERE)
    env = {"HOME": str(tmp_path / "own"), "PATH": "/usr/bin:/bin", "WHOSE": "the client's"}
    client = weftrun.Client(config=tmp_path / "config.toml", env=env)
    made = client.submit(job("own", "echo $WHOSE"), backend="lab")
    assert made.wait(timeout=60).succeeded
    assert [str(line) for line in made.logs() if not line.is_notice] == ["the client's"]
    assert client.jobs("lab", all=True) == [made] and weftrun.jobs("local", all=True) == []
    assert (tmp_path / "own/.local/state/weftrun").is_dir()
    with pytest.raises(weftrun.errors.NotFoundError):
        weftrun.plan(job("own", "true"), backend="lab")


def test_the_module_sees_a_changed_environment_and_reloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(weftrun.errors.NotFoundError):
        weftrun.plan(job("a", "true"), backend="lab")
    config = tmp_path / "config.toml"
    config.write_text(ELSEWHERE)
    monkeypatch.setenv("WEFTRUN_CONFIG", str(config))
    weftrun.plan(job("a", "true"), backend="lab")
    config.write_text(ELSEWHERE.replace("[target.lab]", "[target.other]"))
    weftrun.plan(job("a", "true"), backend="lab")
    weftrun.reload()
    weftrun.plan(job("a", "true"), backend="other")


def test_jobs_are_jobs_with_names_and_times() -> None:
    made = weftrun.submit(job("timed", "true"), backend="local")
    end = made.wait(timeout=60)
    (listed,) = weftrun.jobs("local", all=True)
    assert listed == made and listed in {made} and listed.name == "timed" and listed != "timed"
    assert listed.created is not None and end.ended is not None
    assert listed.created.tzinfo is timezone.utc
    assert abs(datetime.now(timezone.utc) - listed.created) < timedelta(hours=1)
    assert listed.created <= end.ended
    assert made.plan is not None and made.plan == weftrun.attach(made.handle).plan


def test_an_unknown_handle_is_an_error_at_once() -> None:
    for handle in ("local://local/none", "local://local/none#0123"):
        with pytest.raises(weftrun.errors.NotFoundError):
            weftrun.attach(handle)
    with pytest.raises(weftrun.errors.UsageError):
        weftrun.attach("no handle")


def test_an_error_has_the_fix_and_no_file_that_does_not_exist() -> None:
    with pytest.raises(weftrun.errors.InvalidSpecError) as wrong:
        weftrun.plan({"name": "x", "nodez": 2, "command": ["true"]}, "local")  # type: ignore[arg-type]
    text = str(wrong.value)
    assert "nodez" in text and "fix: did you mean `nodes`?" in text and "job.yaml" not in text
    assert "job.yaml" not in json.dumps(wrong.value.findings)


def keys(schema: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Returns the keys of an object in a schema, also of one that is a choice or an element."""
    if "properties" in schema:
        found: Dict[str, Any] = schema["properties"]
        return found
    inner = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    if isinstance(schema.get("additionalProperties"), dict):
        inner.append(schema["additionalProperties"])
    return next((one for one in map(keys, inner) if one), None)


def test_the_types_have_the_keys_of_the_schema() -> None:
    schema = json.loads((CASES / "docs/reference/job.schema.json").read_text())["properties"]
    for spec, name in [
        (weftrun.spec.CodeSpec, "code"),
        (weftrun.spec.FabricSpec, "fabric"),
        (weftrun.spec.RestartSpec, "restart"),
        (weftrun.spec.RetrySpec, "retry"),
        (weftrun.spec.RoleSpec, "roles"),
        (weftrun.spec.SecretSpec, "secrets"),
        (weftrun.spec.VolumeSpec, "volumes"),
    ]:
        assert set(spec.__annotations__) == set(keys(schema[name]) or ()), name
    assert set(weftrun.JobSpec.__annotations__) == set(schema)


def test_a_misspelt_key_is_an_error_of_mypy(tmp_path: Path) -> None:
    def checked(spec: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "use.py").write_text(f"import weftrun\nweftrun.plan({spec})\n")
        words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "use.py"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    right = checked('{"name": "a", "nodes": 2, "command": ["true"], "fabric": {"kind": "efa"}}')
    assert right.returncode == 0, right.stdout
    wrong = checked('{"nmae": 3}')
    assert wrong.returncode == 1 and "JobSpec" in wrong.stdout


def test_a_command_runs_beside_a_rank_and_events_are_read() -> None:
    made = weftrun.submit(job("beside", "echo up; sleep 600"), backend="local")
    next(line for line in made.logs() if not line.is_notice)
    ran = made.exec(["sh", "-c", "echo out; echo err >&2; exit 7"], rank=0)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (7, b"out\n", b"err\n")
    assert made.health(observe=0, timeout=5).state == "unreachable"
    made.suspend()
    assert made.describe()["phase"] == "suspended"
    made.resume()
    made.cancel()
    phases = [event["job"]["phase"] for event in made.watch() if event["type"] == "status"]
    assert phases[-1] == "cancelled"
    report = made.report()
    assert report.data["job"]["phase"] == "cancelled" and 'name = "beside"' in report.data["spec"]


def test_a_target_is_examined_and_its_nodes_report() -> None:
    doctor = weftrun.doctor("local")
    assert doctor.ok and doctor.data["backend"] == "local"
    spec: weftrun.JobSpec = {"name": "probe", "launch": "per-rank", "command": ["replaced"]}
    probe = weftrun.probe(spec, "local", timeout=100)
    assert len(probe.nodes) == 1 and "kernel" in probe.nodes[0]["facts"]
    with pytest.raises(weftrun.errors.UsageError, match="all-reduce"):
        weftrun.verify(spec, "local", collectives=["all-redcue"])


def test_files_are_linted_and_imported(tmp_path: Path) -> None:
    linted = weftrun.lint({"name": "x", "nodez": 2, "command": ["true"]})  # type: ignore[arg-type]
    assert not linted.ok and "nodes" in str(linted)
    assert weftrun.lint(job("fine", "true")).ok
    manifest = CASES / "tests/cases/mutate/01-pytorchjob-full-nodes/before.yaml"
    assert isinstance(weftrun.lint(manifest).findings, list)
    made = weftrun.import_job(manifest.read_text())
    (tmp_path / "job.toml").write_text(made.text)
    assert weftrun.plan(tmp_path / "job.toml", "kubeflow").data["name"] == made.data["job"]["name"]
    script = "#!/bin/bash\n#SBATCH --job-name=a\n#SBATCH --nodes=2\nsrun ./train\n"
    assert 'name = "a"' in str(weftrun.import_job(script))
    with pytest.raises(weftrun.errors.InvalidSpecError):
        weftrun.import_job("kind: Pod\n")
