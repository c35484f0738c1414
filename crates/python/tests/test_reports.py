"""Reports as data: their fields cannot be set, and they have copies, tables and HTML."""

import json
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Dict

import pytest

import weftrun
from support import CASES, PATIENCE, job

CAPTURE = CASES / "crates/diagnose/tests/cases/nccl/captures/four_nodes"
SPEC: weftrun.JobSpec = {"name": "p", "image": "a", "nodes": 2, "gpus_per_node": 8, "command": ["true"]}

#: Each kind of report that needs no cluster, and columns of its table.
KINDS: Dict[str, Any] = {
    "plan": (lambda: weftrun.plan(SPEC, "kubeflow", profile="dgxc"), ["rule", "target", "value"]),
    "transport": (lambda: weftrun.transport(CAPTURE), ["from", "to", "transport", "devices.send"]),
    "why": (lambda: weftrun.why(CASES / "tests/cases/failures/exception"), ["class", "what", "ranks"]),
    "verify": (
        lambda: weftrun.verify_logs(CASES / "tests/cases/verify/h200-nvlink.log"),
        ["collective", "size", "out_of_place.busbw"],
    ),
    "bandwidth": (
        lambda: weftrun.bandwidth(CASES / "crates/nccl/tests/bandwidth/inspector-2.28.9-slow"),
        ["communicator", "collective", "busbw_gbps"],
    ),
    "nodes": (lambda: weftrun.nodes("local"), []),
    "lint": (lambda: weftrun.lint(CASES / "tests/cases/mutate/01-pytorchjob-full-nodes/before.yaml"), []),
    "doctor": (lambda: weftrun.doctor("local"), []),
    "status": (lambda: weftrun.submit(job("s", "exit 3"), "local").wait(timeout=PATIENCE), ["name", "phase", "exit_code"]),
    "report": (lambda: ended().report(), []),
}


def ended() -> weftrun.Job:
    made = weftrun.submit(job("r", "true"), "local")
    made.wait(timeout=PATIENCE)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_frozen_and_has_a_copy_a_table_and_html(kind: str) -> None:
    make, columns = KINDS[kind]
    report = make()
    with pytest.raises(FrozenInstanceError):
        report.data = {}
    with pytest.raises(FrozenInstanceError):
        report.other = 1
    copy = report.to_dict()
    assert copy == report.data and json.loads(json.dumps(copy)) == copy
    copy["schema"] = "changed"
    assert report.data.get("schema") != "changed"
    table = report.to_pandas()
    assert len(table) == len(report._rows()) and set(columns) <= set(table.columns), list(table.columns)
    assert bool(columns) <= len(table)
    assert "<" in report._repr_html_() and len(repr(report)) < 500


def test_the_tables_have_the_figures() -> None:
    verified = KINDS["verify"][0]()
    assert verified == KINDS["verify"][0]() != KINDS["why"][0]()
    table = verified.to_pandas()
    assert table["out_of_place.busbw"].max() == verified.data["runs"][0]["busbw_gbps"] == 346.98
    assert verified.verdict == "no-reference" and "346.98" in verified._repr_html_()
    speeds = KINDS["bandwidth"][0]()
    assert speeds.late == [] and {"AllReduce", "Broadcast"} == set(speeds.to_pandas()["collective"])


def test_values_of_a_table_are_escaped() -> None:
    row = {"node": "<script>", "inner": {"a": "<b>"}, "list": [1]}
    html = weftrun.Nodes({"target": "<i>", "nodes": [row], "findings": [{"severity": "error", "message": "<u>"}]})._repr_html_()
    assert "<script>" not in html and "<b>" not in html and "<i>" not in html and "<u>" not in html
    assert "inner.a" in html and "&lt;b&gt;" in html


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    report = weftrun.nodes("local")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(weftrun.errors.MissingPackageError, match=r"pip install \"weftrun\[pandas\]\""):
        report.to_pandas()
    assert issubclass(weftrun.errors.MissingPackageError, ImportError)


def test_errors_of_the_program_are_exceptions(home: Path) -> None:
    with pytest.raises(weftrun.errors.NotFoundError, match="no target or backend `nix`"):
        weftrun.nodes("nix")
    with pytest.raises(weftrun.errors.NotFoundError, match="no such file"):
        weftrun.bandwidth("no-such-file")
    (home / "config.toml").write_text('[target.lab]\nbackend = "local"\n')
    client = weftrun.Client(config=home / "config.toml")
    assert client.nodes("lab").data["target"] == "lab"
