#!/usr/bin/env python3
"""Makes docs/images/*.svg from the real program in a real terminal (tmux): replays, keys, captures.

    docs/screenshots.py [path of the binary; target/debug/weftrun if not given]
"""

import html
import os
import sys

from tmux_screen import BACK, Terminal, pieces

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../target/debug/weftrun"))
COLUMNS, ROWS = 120, 34
CELL, LINE = 8.4, 17

# Name, arguments, then what is pressed and what must be on the screen before the next key.
SHOTS = [
    ("overview", "--replay socket_2x2 --nodes 4 --ranks-per-node 8 --speed 20", [("", "DONE"), ("z", "Ranks 32")]),
    ("fabric", "--replay ofi_tcp_2x2 --nodes 8 --ranks-per-node 4 --speed 0", [("", "DONE"), ("3", "node × node")]),
    ("logs", "--replay socket_2x2 --nodes 4 --ranks-per-node 4 --speed 0", [("", "DONE"), ("4", "NCCL INFO"), ("=", "folded"), ("K", "pinned")]),
    ("diagnosis", "--replay plugin_missing --speed 0", [("", "DONE"), ("5", "Diagnosis")]),
    ("help", "--replay socket_2x2 --speed 0", [("", "DONE"), ("?", "Everywhere")]),
]


def svg(capture):
    width, height = COLUMNS * CELL + 24, ROWS * LINE + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="#{BACK}"/>',
    ]
    for row, line in enumerate(capture.split("\n")[:ROWS]):
        column, y = 0, 24 + row * LINE
        for piece, fill, ground, style in pieces(line):
            x, wide = 12 + column * CELL, len(piece) * CELL
            if ground != BACK:
                out.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{wide:.1f}" height="{LINE}" fill="#{ground}"/>')
            if piece.strip():
                extra = ' font-weight="bold"' if style.get("bold") else ""
                extra += ' text-decoration="underline"' if style.get("underline") else ""
                out.append(
                    f'<text x="{x:.1f}" y="{y}" fill="#{fill}"{extra} textLength="{wide:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(piece)}</text>'
                )
            column += len(piece)
    return "\n".join([*out, "</svg>", ""])


def main():
    for name, arguments, keys in SHOTS:
        terminal = Terminal((COLUMNS, ROWS), f"{BINARY} tui --fresh {arguments}")
        try:
            shown = terminal.press(keys)
        finally:
            terminal.close()
        with open(os.path.join(HERE, "images", f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(svg(shown))
        print(name)


main()
