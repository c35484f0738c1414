"""What the tests share."""

import os
from pathlib import Path

from weftrun import JobSpec

#: The repository: captures and recorded failures.
CASES = Path(os.environ["WEFTRUN_CASES"])


def job(name: str, script: str, nodes: int = 1) -> JobSpec:
    return {"name": name, "nodes": nodes, "command": ["sh", "-c", script]}
