"""Reports as HTML for notebooks. Every value is escaped: logs and names are not trusted."""

from __future__ import annotations

from html import escape
from typing import Any, Dict, Iterable, List, Mapping, Sequence

#: Rows that are shown of a long table.
_MOST_ROWS = 64

#: Ranks of the largest matrix that is drawn.
_MOST_RANKS = 32

#: Colours that are read on a light and on a dark page.
_COLOURS = {"error": "#d03a3a", "failed": "#d03a3a", "warning": "#b8860b", "cancelled": "#b8860b", "succeeded": "#2e8b57"}
_CELL = '<td style="font-family: monospace; text-align: left; white-space: pre-wrap">{}</td>'


def _text(value: Any) -> str:
    # More digits of a measurement say nothing.
    text = escape("" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value))
    colour = _COLOURS.get(text)
    return f'<b style="color: {colour}">{text}</b>' if colour else text


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[_text(cell) for cell in row] for row in rows]
    more = len(cells) - _MOST_ROWS
    body = "".join(f"<tr>{''.join(map(_CELL.format, row))}</tr>" for row in cells[:_MOST_ROWS])
    header = "".join(f'<th style="text-align: left">{_text(name)}</th>' for name in head)
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


def flat(row: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns a row without objects inside: `{"a": {"b": 1}}` becomes `{"a.b": 1}`."""
    cells: Dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            cells.update({f"{key}.{inner}": cell for inner, cell in flat(value).items()})
        else:
            cells[key] = value
    return cells


def report(data: Mapping[str, Any], title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats any report: what is one value, its table, its findings."""
    one = {key: value for key, value in data.items() if key != "schema" and isinstance(value, (str, int, float))}
    words = [f"{_text(key)} {_text(value)}" for key, value in one.items() if "\n" not in str(value)]
    head, body = (f"<p>{', '.join(words)}</p>" if words else ""), ""
    if title != "findings":
        body = _findings(data.get("findings") or [])
    elif rows and "message" in rows[0]:
        return head + _findings(rows)
    cells = [flat(row) for row in rows]
    # A column for each value; lists have their own shape, which a cell cannot show.
    shown = (name for row in cells for name, value in row.items() if value is not None and not isinstance(value, list))
    names = list(dict.fromkeys(shown))
    return head + (_table(names, [[row.get(name) for name in names] for row in cells]) if cells else f"<p>no {title}</p>") + body


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
        + _matrix(data.get("pairs") or [])
        + (_table(("from", "to", "transport", "network", "channels"), pairs) if pairs else "")
    )


def _matrix(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Formats the transports of a few ranks as a matrix: a row for each rank that sends, a column for each that receives."""
    uses = {(one.get("global_from"), one.get("global_to")): str(one.get("transport") or "") for one in pairs}
    ranks = sorted({rank for pair in uses for rank in pair if isinstance(rank, int)})
    if not 1 < len(ranks) <= _MOST_RANKS or any(None in pair for pair in uses):
        return ""
    rows = [[f"rank {sender}", *(uses.get((sender, receiver), "·") for receiver in ranks)] for sender in ranks]
    return _table(("from / to", *map(str, ranks)), rows)


def status(data: Mapping[str, Any]) -> str:
    """Formats how a job ended, and why it failed."""
    job = data.get("job") or {}
    row = (job.get("name"), job.get("phase"), job.get("exit_code"), job.get("reason"), job.get("ended"))
    cause = (data.get("why") or {}).get("cause") or {}
    parts = [_table(("job", "phase", "exit code", "reason", "ended"), [row])]
    if cause:
        ranks = ", ".join(map(str, cause.get("ranks") or []))
        parts.append(_table(("cause", "ranks", "what"), [(cause.get("class"), ranks, cause.get("what"))]))
    return "".join(parts)


def why(data: Mapping[str, Any], text: str) -> str:
    """Formats the cause of a failure."""
    return f"<p><b>{_text(data.get('state'))}</b></p><pre>{_text(text)}</pre>" + _findings(data.get("findings") or [])
