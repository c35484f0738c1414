"""Each test has an empty home, and nothing of the user's environment."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name not in ("PATH", "TMPDIR", "WEFTRUN_CASES", "WEFTRUN_TEST_SLURM") and not name.startswith("PYTEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path
