"""Reports, logs and findings: plain data with the shape of ``-o json``."""

from __future__ import annotations

import asyncio
import copy
import importlib
from dataclasses import FrozenInstanceError, dataclass
from datetime import datetime, timezone
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Tuple

from . import _html, _native, errors

#: Seconds after which a read of `async for` looks whether it is still wanted.
_ASYNC_WAIT = 0.2


@dataclass(frozen=True)
class Finding:
    """Something that weftrun noticed."""

    #: Stable code; ``weftrun explain CODE`` has more.
    code: str
    #: ``error``, ``warning`` or ``info``.
    severity: str
    message: str
    #: What to change, if that is known.
    fix: Optional[str]

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> "Finding":
        fix = data.get("fix")
        if isinstance(fix, Mapping):
            fix = fix.get("text")
        return cls(data.get("code", ""), data.get("severity", ""), data.get("message", ""), fix)

    def __str__(self) -> str:
        fix = f"\n  fix: {self.fix}" if self.fix else ""
        return f"{self.severity}: {self.message} [{self.code}]{fix}"


@dataclass(frozen=True)
class LogLine:
    """A line of a job's log, or a notice about the log."""

    #: The line without its newline, exactly as it was printed.
    bytes: bytes
    #: The pod, task or file that printed it.
    source: str
    #: Global rank, where the source is one rank.
    rank: Optional[int]
    role: str
    #: Restart of the source, from 0.
    attempt: int
    #: When it was printed, where the cluster reports that.
    time: Optional[datetime]
    #: Whether this is not a line of the job but weftrun's notice, for example that lines are missing.
    is_notice: bool

    @property
    def text(self) -> str:
        """The line as text; bytes that are not UTF-8 are replaced."""
        return self.bytes.decode("utf-8", "replace")

    def __str__(self) -> str:
        return self.text


def _time(text: Optional[str]) -> Optional[datetime]:
    """Reads a time of a report (``2026-11-26T07:05:42.123456789Z``), which no Python before 3.11 does."""
    if text is None:
        return None
    seconds, _, fraction = text.rstrip("Z").partition(".")
    time = datetime.strptime(seconds, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return time.replace(microsecond=int(fraction[:6].ljust(6, "0")) if fraction else 0)


class Logs:
    """The lines of a job's logs. Iterate with ``for`` or ``async for``; lines are read as they are needed."""

    def __init__(self, native: _native.Logs) -> None:
        self._native = native
        self._pending: Optional["asyncio.Future[Tuple[Optional[_native.Line], bool]]"] = None

    def __iter__(self) -> Iterator[LogLine]:
        return self

    def __next__(self) -> LogLine:
        line, _ = self._native.next()
        if line is None:
            raise StopIteration
        return _line(line)

    def __aiter__(self) -> AsyncIterator[LogLine]:
        return self

    async def __anext__(self) -> LogLine:
        while True:
            # A cancelled wait leaves its read behind, which ends soon; the next call takes its line.
            if self._pending is None:
                loop = asyncio.get_running_loop()
                self._pending = loop.run_in_executor(None, self._native.next, _ASYNC_WAIT)
            line, over = await asyncio.shield(self._pending)
            self._pending = None
            if line is not None:
                return _line(line)
            if over:
                raise StopAsyncIteration


def _line(line: "_native.Line") -> LogLine:
    data, source, rank, role, attempt, seconds, is_notice = line
    time = None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    return LogLine(data, source, rank, role, attempt, time, is_notice)


def import_optional(name: str, extra: str, purpose: str) -> Any:
    """Imports a package that weftrun is useful without."""
    try:
        return importlib.import_module(name)
    except ImportError:
        fix = f'pip install "weftrun[{extra}]", or pip install {name}'
        raise errors.MissingPackageError({"message": f"{purpose} needs the package `{name}`", "hints": [fix]}) from None


class _Report:
    """A report of weftrun: plain data with the shape of ``-o json``. Reports with the same data are equal."""

    #: The report as ``-o json`` prints it, not copied: what is changed in it is changed in the report. See :meth:`to_dict`.
    data: Dict[str, Any]
    #: The key of its table, and where its findings are.
    _table = _found = "findings"

    def __init__(self, data: Dict[str, Any], **more: Any) -> None:
        self.__dict__.update(more, data=data)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, type(self)) else NotImplemented

    # The data may be changed, which a set would not see.
    __hash__ = None  # type: ignore[assignment]

    @property
    def findings(self) -> List[Finding]:
        """What weftrun noticed, most severe first where the report is sorted so."""
        return [Finding._of(finding) for finding in self._list(self._found)]

    def _list(self, path: str) -> List[Any]:
        value: Any = self.data
        for key in path.split("."):
            value = value.get(key) or {}
        return list(value)

    def to_dict(self) -> Dict[str, Any]:
        """Returns a copy of the report, as ``-o json`` prints it."""
        return copy.deepcopy(self.data)

    def to_pandas(self) -> Any:
        """Returns the table of the report as a ``pandas.DataFrame``; keys of objects inside are joined by dots.

        It needs ``weftrun[pandas]``.
        """
        pandas = import_optional("pandas", "pandas", "a table")
        return pandas.DataFrame([_html.flat(row) for row in self._rows()])

    def _rows(self) -> List[Mapping[str, Any]]:
        return self._list(self._found if self._table == "findings" else self._table)

    def __repr__(self) -> str:
        words = [f"{key}={value}" for key, value in self.data.items() if key != "schema" and isinstance(value, (str, int, float))]
        return f"<{type(self).__name__}: {', '.join([*words, f'{len(self._rows())} rows'])}>"

    def _repr_html_(self) -> str:
        return _html.report(self.data, self._table, self._rows())


class Why(_Report):
    """The first cause of a failure or a hang."""

    _text: str

    def __init__(self, data: Dict[str, Any], text: str) -> None:
        super().__init__(data, _text=text)

    @property
    def state(self) -> str:
        """``failed``, ``hanging``, ``running``, ``succeeded`` or ``unknown``."""
        return str(self.data["state"])

    @property
    def cause(self) -> Optional[Dict[str, Any]]:
        """Class, ranks, nodes, sentence, frame and evidence of the cause; none if there is none."""
        return self.data.get("cause")

    @property
    def ranks(self) -> List[int]:
        """Global ranks that the cause is on."""
        return list((self.cause or {}).get("ranks") or [])

    def _rows(self) -> List[Mapping[str, Any]]:
        return [self.cause] if self.cause else []

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Why {self.state}: {(self.cause or {}).get('what', 'no cause')}>"

    def _repr_html_(self) -> str:
        return _html.why(self.data, self._text)


class Transport(_Report):
    """Which transport each pair of ranks uses, and why not a faster one."""

    _why: str
    _table = "pairs"

    def __init__(self, data: Dict[str, Any], why: str) -> None:
        super().__init__(data, _why=why)

    @property
    def verdict(self) -> Dict[str, Any]:
        """What the logs prove about the fabric."""
        return dict(self.data["verdict"])

    @property
    def ok(self) -> Optional[bool]:
        """Whether the planned fabric is used; none if that is unknown."""
        return self.verdict.get("ok")

    @property
    def pairs(self) -> List[Dict[str, Any]]:
        """The pairs of ranks, with transport, network and channels."""
        return list(self.data.get("pairs") or [])

    def __repr__(self) -> str:
        return f"<Transport of {len(self.data.get('ranks') or [])} ranks, {len(self.pairs)} pairs, ok={self.ok}>"

    def _repr_html_(self) -> str:
        return _html.transport(self.data, self._why)


class Mutation(_Report):
    """A manifest or script with the fabric applied."""

    #: The new text; the old one, to the byte, where nothing had to change.
    text: str

    def __init__(self, text: str, data: Dict[str, Any]) -> None:
        super().__init__(data, text=text)

    @property
    def changed(self) -> bool:
        """Whether the text differs from the input."""
        return bool(self.data["changed"])

    @property
    def actions(self) -> List[str]:
        """What was done, in a few words each."""
        return list(self.data.get("actions") or [])

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Mutation: {len(self.actions)} changes>"


class Status(_Report):
    """How a job ended."""

    @property
    def phase(self) -> str:
        """``succeeded``, ``failed``, ``cancelled``, and others before the end."""
        return str(self.data["job"]["phase"])

    @property
    def succeeded(self) -> bool:
        """Whether the job succeeded."""
        return self.phase == "succeeded"

    @property
    def created(self) -> Optional[datetime]:
        """When it was submitted, where the cluster reports that."""
        return _time(self.data["job"].get("created"))

    @property
    def ended(self) -> Optional[datetime]:
        """When it ended, where the cluster reports that."""
        return _time(self.data["job"].get("ended"))

    @property
    def exit_code(self) -> Optional[int]:
        """The job's own exit code, where the cluster has one."""
        code = self.data["job"].get("exit_code")
        return None if code is None else int(code)

    @property
    def why(self) -> Optional[Dict[str, Any]]:
        """Why it failed, as ``weftrun why -o json``; none if it did not."""
        return self.data.get("why")

    def _rows(self) -> List[Mapping[str, Any]]:
        return [self.data["job"]]

    def __repr__(self) -> str:
        return f"<Status {self.phase}>"

    def _repr_html_(self) -> str:
        return _html.status(self.data)


class Lint(_Report):
    """What is wrong with a job file, manifest or script."""

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)

    def __repr__(self) -> str:
        return f"<Lint: {len(self.findings)} findings>"


class Import(_Report):
    """A manifest, batch script or command line as a job file."""

    @property
    def text(self) -> str:
        """The job file, as TOML."""
        return str(self.data["file"])

    def __str__(self) -> str:
        return self.text


class Doctor(_Report):
    """What of a target is reachable, with which rights."""

    _found = "facts.notes"

    @property
    def ok(self) -> bool:
        """Whether no finding, of what would prevent a job, is an error."""
        return all(finding.severity != "error" for finding in self.findings)


class Health(_Report):
    """What NCCL's RAS service reports of a running job."""

    @property
    def state(self) -> str:
        """``healthy``, ``stalled``, ``unreachable``, and others."""
        return str(self.data["state"])


class Verify(_Report):
    """The judged bandwidth of collectives."""

    @property
    def verdict(self) -> str:
        """``pass``, ``no-reference``, ``degraded`` or ``fail``."""
        return str(self.data["verdict"])

    def _rows(self) -> List[Mapping[str, Any]]:
        """Each measured size of each collective."""
        runs = self.data["runs"]
        return [{"collective": run["collective"], "ranks": run.get("ranks"), **row} for run in runs for row in run["rows"]]


class Bandwidth(_Report):
    """How fast each collective is, and which rank the others wait for."""

    @property
    def late(self) -> List[Dict[str, Any]]:
        """The ranks for which the others wait."""
        return list(self.data.get("late") or [])

    def _rows(self) -> List[Mapping[str, Any]]:
        """Each range of sizes of each collective of each communicator."""
        return [
            {"communicator": group["id"], "ranks": group["ranks"], "collective": one["collective"], **size}
            for group in self.data["communicators"]
            for one in group["collectives"]
            for size in one["sizes"]
        ]


class Nodes(_Report):
    """What the jobs of a target say of its nodes, suspects first."""

    _table = "nodes"

    @property
    def nodes(self) -> List[Dict[str, Any]]:
        """Each node with its runs, its judgement and the evidence."""
        return list(self.data["nodes"])


class Probe(_Report):
    """What the nodes of a target have."""

    _table = "nodes"

    @property
    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes that reported, each with its facts and devices."""
        return list(self.data["nodes"])


class Report(_Report):
    """Everything known of a job. Its findings are what the logs say of the transports."""

    _found = "transport.findings"


@dataclass(frozen=True)
class Ran:
    """A command that ran beside a rank."""

    exit_code: int
    stdout: bytes
    stderr: bytes
