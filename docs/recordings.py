#!/usr/bin/env python3
"""Records runs, some slower than they were, of the real program in a real terminal (tmux) as docs/images/*-recording.svg: pictures that move, without a
script. Readers who asked their system for less motion see the last picture.

    docs/recordings.py [path of the binary; target/debug/weftrun if not given]
"""

import os
import sys
import threading
import time

from tmux_screen import CELL, LINE, Terminal, drawn, opening

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../target/debug/weftrun"))
# Seconds between two looks at the screen, and how long the last picture stays.
EVERY, LAST = 0.2, 6

# Name, columns, rows, command, then what is pressed and what must be on the screen before the next key. A pause lets a
# reader read.
RECORDINGS = [
    ("demo", 140, 46, "demo --replay --pace 4 --color always", [("", "What a transport costs")]),
    (
        "tui",
        120,
        34,
        "tui --fresh --replay ofi_tcp_2x2 --nodes 4 --ranks-per-node 4 --speed 4",
        [("", "DONE"), ("3", "node × node"), ("4", "NCCL INFO"), ("5", "Diagnosis")],
    ),
]
PAUSE = 2


class Recorder(threading.Thread):
    """Looks at a terminal until it is stopped; `frames` are the times and screens that differ from the one before."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal, self.frames, self.ended = terminal, [], threading.Event()

    def run(self):
        began = time.monotonic()
        while not self.ended.wait(EVERY):
            screen = self.terminal.run("capture-pane", "-e", "-p", "-t", "t").rstrip()
            if screen and (not self.frames or self.frames[-1][1] != screen):
                self.frames.append((time.monotonic() - began, screen))


def film(frames, columns, rows):
    """Draws the screens below each other, and moves them past the window. A line that many screens have is drawn once."""
    height, began = rows * LINE + 24, frames[0][0]
    total = frames[-1][0] - began + LAST
    known, pictures, steps = {}, [], []
    for number, (at, screen) in enumerate(frames):
        steps.append(f"{100 * (at - began) / total:.2f}%{{transform:translateY({-number * height}px)}}")
        for row, line in enumerate(screen.split("\n")[:rows]):
            shapes = "".join(drawn(line, 0))
            # What the terminal's own shell prints of the program's end is no part of it.
            if shapes and not line.startswith("ended with "):
                name = known.setdefault(shapes, f"l{len(known)}")
                pictures.append(f'<use href="#{name}" y="{number * height + 24 + row * LINE}"/>')
    last = -(len(frames) - 1) * height
    style = (
        f"@keyframes film{{{''.join(steps)}}}.film{{animation:film {total:.1f}s step-end infinite}}"
        f"@media(prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateY({last}px)}}}}"
    )
    lines = "".join(f'<g id="{name}">{shapes}</g>' for shapes, name in known.items())
    # An inner picture cuts what is outside of the window.
    window = f'<svg width="{columns * CELL + 24:.0f}" height="{height}"><g class="film">'
    parts = [opening(columns, rows), f"<style>{style}</style><defs>{lines}</defs>", window, *pictures, "</g></svg></svg>", ""]
    return "\n".join(parts)


def main():
    for name, columns, rows, command, keys in RECORDINGS:
        terminal = Terminal((columns, rows), f"{BINARY} {command}")
        recorder = Recorder(terminal)
        try:
            recorder.start()
            for key in keys:
                terminal.press([key])
                time.sleep(PAUSE)
        finally:
            recorder.ended.set()
            recorder.join()
            terminal.close()
        path = os.path.join(HERE, "images", f"{name}-recording.svg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(film(recorder.frames, columns, rows))
        print(f"{path}: {len(recorder.frames)} pictures, {os.path.getsize(path)} bytes; look at it before you keep it")


main()
