#!/usr/bin/env python3
"""Makes docs/images/*.svg from the real program in a real terminal (tmux): replays, keys, captures.

    docs/screenshots.py [path of the binary; target/debug/weftrun if not given]
"""

import html
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../target/debug/weftrun"))
COLUMNS, ROWS = 120, 34
CELL, LINE = 8.4, 17
# The sixteen colours of a dark terminal.
PALETTE = """#1d2026 #e06c75 #98c379 #e5c07b #61afef #c678dd #56b6c2 #d7dae0
             #7f848e #e8868f #a9d18e #f0d197 #7fc1f5 #d394e6 #70cdd8 #ffffff""".split()

# Name, arguments, then what is pressed and what must be on the screen before the next key.
SHOTS = [
    ("overview", "--replay socket_2x2 --nodes 4 --ranks-per-node 8 --speed 20", [("", "DONE"), ("z", "Ranks 32")]),
    ("fabric", "--replay ofi_tcp_2x2 --nodes 8 --ranks-per-node 4 --speed 0", [("", "DONE"), ("3", "node × node")]),
    ("logs", "--replay socket_2x2 --nodes 4 --ranks-per-node 4 --speed 0", [("", "DONE"), ("4", "NCCL INFO"), ("=", "folded"), ("K", "pinned")]),
    ("diagnosis", "--replay plugin_missing --speed 0", [("", "DONE"), ("5", "Diagnosis")]),
    ("help", "--replay socket_2x2 --speed 0", [("", "DONE"), ("?", "Everywhere")]),
]


def tmux(*arguments):
    return subprocess.run(["tmux", "-L", f"weftrun-shots-{os.getpid()}", *arguments], capture_output=True, text=True).stdout


def wait(text):
    for _ in range(600):
        shown = tmux("capture-pane", "-p", "-t", "t")
        if text in shown:
            return
        time.sleep(0.1)
    sys.exit(f"`{text}` did not come:\n{shown}")


def colour(codes, at):
    if codes[at + 1] == 5:
        number = codes[at + 2]
        if number < 16:
            return PALETTE[number], at + 3
        if number >= 232:
            grey = 8 + (number - 232) * 10
            return f"#{grey:02x}{grey:02x}{grey:02x}", at + 3
        steps = [0, 95, 135, 175, 215, 255]
        number -= 16
        red, green, blue = steps[number // 36], steps[number // 6 % 6], steps[number % 6]
        return f"#{red:02x}{green:02x}{blue:02x}", at + 3
    return "#%02x%02x%02x" % tuple(codes[at + 2 : at + 5]), at + 5


def apply(style, codes):
    at = 0
    while at < len(codes):
        code = codes[at]
        if code == 0:
            style = {}
        elif code == 1:
            style = {**style, "bold": True}
        elif code == 4:
            style = {**style, "underline": True}
        elif code == 7:
            style = {**style, "reverse": True}
        elif code in (22, 24, 27):
            style = {k: v for k, v in style.items() if k != {22: "bold", 24: "underline", 27: "reverse"}[code]}
        elif 30 <= code <= 37:
            style = {**style, "fg": PALETTE[code - 30]}
        elif 90 <= code <= 97:
            style = {**style, "fg": PALETTE[code - 82]}
        elif code == 39:
            style = {k: v for k, v in style.items() if k != "fg"}
        elif code in (38, 48):
            value, at = colour(codes, at)
            style = {**style, "fg" if code == 38 else "bg": value}
            continue
        at += 1
    return style


def svg(capture):
    width, height = COLUMNS * CELL + 24, ROWS * LINE + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{PALETTE[0]}"/>',
    ]
    for row, line in enumerate(capture.split("\n")[:ROWS]):
        style, column, y = {}, 0, 24 + row * LINE
        for piece in re.split(r"(\x1b\[[0-9;:]*m)", line):
            if piece.startswith("\x1b["):
                style = apply(style, [int(code or 0) for code in re.split("[;:]", piece[2:-1])])
                continue
            if not piece:
                continue
            fill, ground = style.get("fg", PALETTE[7]), style.get("bg")
            if style.get("reverse"):
                fill, ground = PALETTE[0], style.get("fg", PALETTE[7])
            x, wide = 12 + column * CELL, len(piece) * CELL
            if ground:
                out.append(f'<rect x="{x:.1f}" y="{y - 13}" width="{wide:.1f}" height="{LINE}" fill="{ground}"/>')
            if piece.strip():
                extra = ' font-weight="bold"' if style.get("bold") else ""
                extra += ' text-decoration="underline"' if style.get("underline") else ""
                out.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{fill}"{extra} textLength="{wide:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(piece)}</text>'
                )
            column += len(piece)
    return "\n".join([*out, "</svg>", ""])


def main():
    for name, arguments, keys in SHOTS:
        with tempfile.TemporaryDirectory() as home:
            command = f"env -u NO_COLOR HOME={home} XDG_STATE_HOME={home} XDG_CONFIG_HOME={home} {BINARY} tui --fresh {arguments}; exec cat"
            tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-s", "t", command)
            try:
                for key, text in keys:
                    if key:
                        tmux("send-keys", "-t", "t", key)
                    wait(text)
                time.sleep(0.5)
                shown = tmux("capture-pane", "-e", "-p", "-t", "t")
            finally:
                tmux("kill-server")
            with open(os.path.join(HERE, "images", f"{name}.svg"), "w", encoding="utf-8") as file:
                file.write(svg(shown))
            print(name)


main()
