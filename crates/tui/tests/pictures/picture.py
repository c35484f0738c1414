#!/usr/bin/env python3
"""Draws screens of the real program as PNG files, to be looked at: tmux runs it, Pillow draws the cells.

    picture.py BINARY FOLDER [NAME...] [--sizes 200x50,120x40,80x24,60x15] [--theme light]

Needs tmux, Pillow and DejaVu Sans Mono. Each scene is a row of SCENES: a name, the arguments of weftrun, and
the keys, each with a text that must be on the screen before the next key.
"""

import argparse
import os
import sys
import tempfile
import unicodedata

from PIL import Image, ImageDraw, ImageFont

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))
sys.path.insert(0, os.path.join(REPOSITORY, "docs"))
from tmux_screen import BACK, FORE, Terminal, pieces

FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono"
CASES = os.path.join(REPOSITORY, "crates/diagnose/tests/cases/nccl/captures")
FAILURES = os.path.join(REPOSITORY, "tests/cases/failures")
# Colour and ground of the terminal that a theme is for.
GROUNDS = {"light": ("1d2026", "fafafa")}

BIG = "tui --replay socket_2x2 --nodes 8 --ranks-per-node 8 --speed 0"
HUGE = "tui --replay socket_2x2 --nodes 128 --ranks-per-node 2 --speed 0"
TENSOR = f"tui --replay {CASES}/tp_pp_2x2 --speed 0"
FAILED = f"tui --replay {FAILURES}/sigkill --speed 0"
ENDED = ("", "DONE")
# Lines of weftrun's library, recorded on two H100, after the prefix that they have in a rank's log.
RECORDED = os.path.join(REPOSITORY, "crates/nccl/tests/bandwidth/weftrun-2.28.9-5ms-rank1")
MEASURED = "tui --replay MEASURED --speed 0"
SCENES = {
    "first": ("tui", [("", "local ok")]),
    "form": ("tui", [("", "local ok"), ("n", "New job")]),
    "palette": (BIG, [("", "DONE"), (":", "Actions")]),
    "overview": (BIG, [ENDED]),
    "ranks": (BIG, [ENDED, ("z", "Ranks")]),
    "fabric": (BIG, [ENDED, ("3", "node")]),
    "fabric-ranks": (BIG, [ENDED, ("3", "node"), ("z", "rank")]),
    "fabric-huge": (HUGE, [ENDED, ("3", "node")]),
    "overview-huge": (HUGE, [ENDED]),
    "fabric-groups": (TENSOR, [ENDED, ("3", "Fabric")]),
    "logs": (BIG, [ENDED, ("4", "lines")]),
    "diagnosis": (BIG, [ENDED, ("5", "Diagnosis")]),
    "failed": (FAILED, [("", "FAIL")]),
    "failed-diagnosis": (FAILED, [("", "FAIL"), ("5", "Diagnosis")]),
    "failed-logs": (FAILED, [("", "FAIL"), ("4", "lines")]),
    "bandwidth": (MEASURED, [ENDED, ("b", "Waiting in")]),
    "bandwidth-ranks": (MEASURED, [ENDED, ("2", "Ranks")]),
    "help": (BIG, [ENDED, ("?", "Help")]),
    "signs": (BIG, [ENDED, ("?", "Help"), ("?", "Signs")]),
}


def measured(folder):
    """Writes the recording as the logs of a job's ranks."""
    for rank, name in enumerate(sorted(os.listdir(RECORDED))):
        with open(os.path.join(RECORDED, name)) as lines, open(os.path.join(folder, f"rank{rank}.log"), "w") as log:
            log.writelines(f"weftrun: NCCL {line}" for line in lines)
    return folder


def draw(capture, size, path, theme):
    points = 15
    plain, bold = (ImageFont.truetype(f"{FONTS}{kind}.ttf", points) for kind in ("", "-Bold"))
    # The monospaced font has no braille.
    braille = ImageFont.truetype(FONTS.replace("SansMono", "Sans") + ".ttf", points - 4)
    wide, high = round(plain.getlength("M")), points + 3
    fore, back = GROUNDS.get(theme, (FORE, BACK))
    image = Image.new("RGB", (size[0] * wide, size[1] * high), f"#{back}")
    canvas = ImageDraw.Draw(image)
    for row, line in enumerate(capture.split("\n")[: size[1]]):
        column = 0
        for piece, front, ground, style in pieces(line, fore, back):
            for char in piece:
                cells = 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
                x, y = column * wide, row * high
                if ground != back:
                    canvas.rectangle([x, y, x + wide * cells - 1, y + high - 1], fill=f"#{ground}")
                font = braille if 0x2800 <= ord(char) < 0x2900 else bold if style.get("bold") else plain
                canvas.text((x, y + 1), char, font=font, fill=f"#{front}")
                if style.get("underline"):
                    canvas.line([x, y + high - 2, x + wide * cells, y + high - 2], fill=f"#{front}")
                column += cells
    image.save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", default="200x50,120x40,80x24,60x15")
    parser.add_argument("--theme", default="")
    arguments = parser.parse_intermixed_args()
    os.makedirs(arguments.folder, exist_ok=True)
    chosen = f" --theme {arguments.theme}" if arguments.theme else ""
    logs = tempfile.TemporaryDirectory()
    measured(logs.name)
    for name in arguments.names or SCENES:
        command, keys = SCENES[name]
        command = command.replace("MEASURED", logs.name)
        for text in arguments.sizes.split(","):
            size = tuple(int(number) for number in text.split("x"))
            command_line = f"{os.path.abspath(arguments.binary)} {command}{chosen}"
            terminal = Terminal(size, command_line, "COLORTERM=truecolor")
            try:
                path = os.path.join(arguments.folder, "-".join(filter(None, [name, arguments.theme, f"{text}.png"])))
                draw(terminal.press(keys), size, path, arguments.theme)
                print(path)
            finally:
                terminal.close()


if __name__ == "__main__":
    main()
