"""Reports as HTML for notebooks. Every value is escaped: logs and names are not trusted."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, List, Mapping, Sequence

#: Rows that are shown of a long table.
_MOST_ROWS = 64


def _text(value: Any) -> str:
    return escape("" if value is None else str(value))


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[_text(cell) for cell in row] for row in rows]
    more = len(cells) - _MOST_ROWS
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[:_MOST_ROWS])
    header = "".join(f"<th>{_text(name)}</th>" for name in head)
    rest = f"<p>{more} more rows: see <code>.data</code></p>" if more > 0 else ""
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    if not findings:
        return ""
    rows: List[Sequence[Any]] = []
    for finding in findings:
        fix = finding.get("fix")
        fix = fix.get("text") if isinstance(fix, Mapping) else fix
        rows.append((finding.get("severity"), finding.get("message"), fix, finding.get("code")))
    return _table(("severity", "finding", "fix", "code"), rows)


def plan(data: Mapping[str, Any]) -> str:
    """Formats a plan."""
    rows = [(one.get("target"), one.get("value"), one.get("why")) for one in data.get("decisions") or []]
    skipped = [(one.get("rule"), one.get("reason"), one.get("why")) for one in data.get("skipped") or []]
    title = f"<p><b>{_text(data.get('name'))}</b>: fabric {_text(data.get('fabric'))}</p>"
    return (
        title
        + (_table(("setting", "value", "why"), rows) if rows else "<p>nothing is changed</p>")
        + (_table(("skipped", "reason", "why"), skipped) if skipped else "")
        + _findings(data.get("findings") or [])
    )


def transport(data: Mapping[str, Any], why: str) -> str:
    """Formats the transports of a job."""
    verdict = data.get("verdict") or {}
    line = ", ".join(f"{_text(key)} {_text(value)}" for key, value in verdict.items() if value is not None)
    pairs = [
        (one.get("from"), one.get("to"), one.get("transport"), one.get("network"), one.get("channels"))
        for one in data.get("pairs") or []
    ]
    return (
        f"<p><b>{len(data.get('ranks') or [])} ranks</b>: {line}</p><pre>{_text(why)}</pre>"
        + _findings(data.get("findings") or [])
        + (_table(("from", "to", "transport", "network", "channels"), pairs) if pairs else "")
    )


def why(data: Mapping[str, Any], text: str) -> str:
    """Formats the cause of a failure."""
    return f"<p><b>{_text(data.get('state'))}</b></p><pre>{_text(text)}</pre>" + _findings(data.get("findings") or [])
