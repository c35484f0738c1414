#!/usr/bin/env python3
"""Makes docs/images/*.svg from the real program in a real terminal (tmux): replays, keys, captures.

    docs/screenshots.py [path of the binary; target/debug/weftrun if not given]
"""

import os
import sys

from tmux_screen import LINE, Terminal, drawn, opening

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../target/debug/weftrun"))
COLUMNS, ROWS = 120, 34

# Name, arguments, then what is pressed and what must be on the screen before the next key.
SHOTS = [
    ("overview", "--replay socket_2x2 --nodes 4 --ranks-per-node 8 --speed 20", [("", "DONE"), ("z", "Ranks 32")]),
    ("fabric", "--replay ofi_tcp_2x2 --nodes 8 --ranks-per-node 4 --speed 0", [("", "DONE"), ("3", "node × node")]),
    ("logs", "--replay socket_2x2 --nodes 4 --ranks-per-node 4 --speed 0", [("", "DONE"), ("4", "NCCL INFO"), ("=", "folded"), ("K", "pinned")]),
    ("diagnosis", "--replay plugin_missing --speed 0", [("", "DONE"), ("5", "Diagnosis")]),
    ("help", "--replay socket_2x2 --speed 0", [("", "DONE"), ("?", "Everywhere")]),
]


def svg(capture):
    rows = [part for row, line in enumerate(capture.split("\n")[:ROWS]) for part in drawn(line, 24 + row * LINE)]
    return "\n".join([opening(COLUMNS, ROWS), *rows, "</svg>", ""])


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
