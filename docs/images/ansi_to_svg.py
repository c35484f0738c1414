#!/usr/bin/env python3
"""Draws what a terminal shows (`tmux capture-pane -e -p`, on stdin) as an SVG: letters, not pixels."""
import re
import sys
import unicodedata
from xml.sax.saxutils import escape

CELL_W, CELL_H, PAD, BAR = 8.0, 17, 16, 30
BACK, FORE, DIM = "#16181d", "#d5d8de", "#7d828c"
COLOURS = ["#3b4048", "#e5736f", "#8cc77e", "#e0b864", "#6f9fe0", "#c08be0", "#62bcc4", "#d5d8de"]
BRIGHT = ["#666c78", "#f28b87", "#a5dd97", "#f2cf86", "#8fb8f2", "#d3a8f0", "#82d5dd", "#ffffff"]


def colour(codes, style):
    """Folds one SGR sequence into the style."""
    codes = [int(code or 0) for code in codes.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = {}
        elif code == 1:
            style = {**style, "bold": True}
        elif code == 2:
            style = {**style, "dim": True}
        elif code == 22:
            style = {k: v for k, v in style.items() if k not in ("bold", "dim")}
        elif 30 <= code <= 37:
            style = {**style, "fore": COLOURS[code - 30]}
        elif 90 <= code <= 97:
            style = {**style, "fore": BRIGHT[code - 90]}
        elif code == 39:
            style = {k: v for k, v in style.items() if k != "fore"}
        elif code in (38, 48) and codes and codes[0] == 5:
            number = codes[1]
            codes = codes[2:]
            if code == 38 and number < 16:
                style = {**style, "fore": (COLOURS + BRIGHT)[number]}
    return style


def width(char):
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def main():
    lines = sys.stdin.read().rstrip("\n").split("\n")
    title = sys.argv[1] if len(sys.argv) > 1 else "weftrun"
    rows, columns, style = [], 0, {}
    for line in lines:
        runs, column = [], 0
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                style = colour(part[2:-1], style)
            elif part:
                cells = sum(map(width, part))
                if part.strip():
                    runs.append((column, cells, part, style))
                column += cells
        rows.append(runs)
        columns = max(columns, column)
    wide, high = columns * CELL_W + 2 * PAD, len(rows) * CELL_H + BAR + 2 * PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>',
    ]
    out += [f'<circle cx="{20 + 18 * n}" cy="18" r="5.5" fill="{c}"/>' for n, c in enumerate(["#e5736f", "#e0b864", "#8cc77e"])]
    out.append(f'<text x="{wide / 2:g}" y="22" text-anchor="middle" font-family="sans-serif" font-size="12" fill="{DIM}">{escape(title)}</text>')
    out.append('<style>text { white-space: pre }</style><g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">')
    for number, runs in enumerate(rows):
        y = BAR + PAD + number * CELL_H + 8
        for column, cells, text, style in runs:
            fill = style.get("fore", FORE)
            extra = ' font-weight="bold"' if style.get("bold") else ""
            extra += ' opacity="0.6"' if style.get("dim") else ""
            lead = len(text) - len(text.lstrip(" "))
            body = text.strip(" ")
            size = sum(map(width, body)) * CELL_W
            out.append(
                f'<text x="{PAD + (column + lead) * CELL_W:g}" y="{y}" fill="{fill}"{extra} textLength="{size:g}">{escape(body)}</text>'
            )
    out.append("</g></svg>")
    print("\n".join(out))


main()
