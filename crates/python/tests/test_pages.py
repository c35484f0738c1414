"""The Python of the pages runs as it is printed."""

import os
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any, Dict, List

import pytest

from support import CASES

PAGES = ["docs/start/python.md", "docs/guides/python-json.md", "docs/guides/functions.md", "crates/python/README.md"]
CAPTURE = "crates/diagnose/tests/cases/nccl/captures/socket_2x2"
MANIFEST = "tests/cases/mutate/01-pytorchjob-full-nodes/before.yaml"


def blocks(page: str) -> List[str]:
    text = (CASES / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.M | re.S)


def test_no_page_with_python_is_missing_here() -> None:
    pages = [CASES / "README.md", *(CASES / "docs").rglob("*.md"), *(CASES / "crates").glob("*/README.md")]
    with_python = {str(page.relative_to(CASES)) for page in pages if "```python" in page.read_text(encoding="utf-8")}
    assert with_python == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the pages take for granted: a target, logs, a manifest, a job file, a training program.
    (home / ".config/weftrun").mkdir(parents=True)
    (home / ".config/weftrun/config.toml").write_text('[target.prod]\nbackend = "local"\n')
    shutil.copytree(CASES / CAPTURE, home / "logs")
    shutil.copy(CASES / MANIFEST, home / "job.yaml")
    hello = 'name = "hello"\nlaunch = "per-rank"\nnodes = 2\ncommand = ["sh", "-c", "echo seed $SEED on rank $RANK"]\n'
    for name in ("job.toml", "hello.toml"):
        (home / name).write_text(hello)
    (home / "torchrun").write_text("#!/bin/sh\necho trained\n")
    (home / "torchrun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    names: Dict[str, Any] = {"__name__": "page"}
    found = blocks(page)
    assert found
    for block in found:
        exec(compile(textwrap.dedent(block), page, "exec"), names)
        # A page may show a test.
        for name in [name for name in names if name.startswith("test_")]:
            (home / name).mkdir()
            names.pop(name)(home / name)
