#!/usr/bin/env python3
"""Draws screens of the real program as PNG files, to be looked at: tmux runs it, Pillow draws the cells.

    picture.py BINARY FOLDER [NAME...] [--sizes 200x50,120x40,80x24,60x15]

Needs tmux, Pillow and DejaVu Sans Mono. Each scene is a row of SCENES: a name, the arguments of weftrun, and
the keys, each with a text that must be on the screen before the next key.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import unicodedata

from PIL import Image, ImageDraw, ImageFont

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../.."))
FONTS = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono"
CASES = os.path.join(REPOSITORY, "crates/core/tests/cases/nccl/captures")
FAILURES = os.path.join(REPOSITORY, "tests/cases/failures")
PALETTE = """1d2026 e06c75 98c379 e5c07b 61afef c678dd 56b6c2 d7dae0
             7f848e e8868f a9d18e f0d197 7fc1f5 d394e6 70cdd8 ffffff""".split()
FORE, BACK = "d7dae0", "1d2026"

BIG = "tui --replay socket_2x2 --nodes 8 --ranks-per-node 8 --speed 0"
HUGE = "tui --replay socket_2x2 --nodes 128 --ranks-per-node 2 --speed 0"
TENSOR = f"tui --replay {CASES}/tp_pp_2x2 --speed 0"
FAILED = f"tui --replay {FAILURES}/sigkill --speed 0"
ENDED = ("", "DONE")
SCENES = {
    "first": ("tui", [("", "local ok")]),
    "form": ("tui", [("", "local ok"), ("n", "New job")]),
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
    "help": (BIG, [ENDED, ("?", "Help")]),
    "signs": (BIG, [ENDED, ("?", "Help"), ("?", "Signs")]),
}


class Terminal:
    def __init__(self, size, command, theme_environment=""):
        self.socket = f"weftrun-picture-{os.getpid()}-{size[0]}"
        self.home = tempfile.TemporaryDirectory()
        home = self.home.name
        line = (
            f"env -u NO_COLOR TERM=screen-256color COLORTERM=truecolor HOME={home} XDG_STATE_HOME={home}/state "
            f"XDG_CONFIG_HOME={home}/config {theme_environment} {command}; echo ended with $?; exec cat"
        )
        self.run("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-s", "t", line)

    def run(self, *arguments):
        done = subprocess.run(["tmux", "-L", self.socket, *arguments], capture_output=True, text=True, check=False)
        return done.stdout

    def wait(self, text):
        shown = ""
        for _ in range(200):
            shown = self.run("capture-pane", "-p", "-t", "t")
            if text in shown:
                return
            time.sleep(0.1)
        print(f"`{text}` did not come:\n{shown}", file=sys.stderr)

    def close(self):
        self.run("kill-server")
        self.home.cleanup()


def colour(codes, at):
    if codes[at + 1] == 5:
        number = codes[at + 2]
        if number < 16:
            return PALETTE[number], at + 3
        if number >= 232:
            return "%02x%02x%02x" % ((8 + (number - 232) * 10,) * 3), at + 3
        steps = [0, 95, 135, 175, 215, 255]
        number -= 16
        return "%02x%02x%02x" % (steps[number // 36], steps[number // 6 % 6], steps[number % 6]), at + 3
    return "%02x%02x%02x" % tuple(codes[at + 2 : at + 5]), at + 5


def apply(style, codes):
    style, at = dict(style), 0
    names = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse"}
    while at < len(codes):
        code = codes[at]
        if code == 0:
            style = {}
        elif code in names:
            style[names[code]] = True
        elif code == 22:
            style.pop("bold", None), style.pop("dim", None)
        elif code in (24, 27):
            style.pop({24: "underline", 27: "reverse"}[code], None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style["fore"] = PALETTE[code - 30 if code < 90 else code - 82]
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style["back"] = PALETTE[code - 40 if code < 100 else code - 92]
        elif code in (39, 49):
            style.pop("fore" if code == 39 else "back", None)
        elif code in (38, 48):
            value, at = colour(codes, at)
            style["fore" if code == 38 else "back"] = value
            continue
        at += 1
    return style


def mix(one, other):
    return "".join("%02x" % ((int(one[i : i + 2], 16) + int(other[i : i + 2], 16)) // 2) for i in (0, 2, 4))


def draw(capture, size, path):
    points = 15
    plain, bold = (ImageFont.truetype(f"{FONTS}{kind}.ttf", points) for kind in ("", "-Bold"))
    # The monospaced font has no braille.
    braille = ImageFont.truetype(FONTS.replace("SansMono", "Sans") + ".ttf", points - 4)
    wide, high = round(plain.getlength("M")), points + 3
    image = Image.new("RGB", (size[0] * wide, size[1] * high), f"#{BACK}")
    canvas = ImageDraw.Draw(image)
    for row, line in enumerate(capture.split("\n")[: size[1]]):
        style, column = {}, 0
        for piece in re.split(r"(\x1b\[[0-9;:]*m|\x1b\([A-Z0]|[\x0e\x0f])", line):
            if piece.startswith("\x1b["):
                style = apply(style, [int(code or 0) for code in re.split("[;:]", piece[2:-1])])
                continue
            if piece.startswith(("\x1b", "\x0e", "\x0f")):
                continue
            for char in piece:
                cells = 0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
                fore, back = style.get("fore", FORE), style.get("back", BACK)
                if style.get("dim"):
                    fore = mix(fore, back)
                if style.get("reverse"):
                    fore, back = back, fore
                x, y = column * wide, row * high
                if back != BACK:
                    canvas.rectangle([x, y, x + wide * cells - 1, y + high - 1], fill=f"#{back}")
                font = braille if 0x2800 <= ord(char) < 0x2900 else bold if style.get("bold") else plain
                canvas.text((x, y + 1), char, font=font, fill=f"#{fore}")
                if style.get("underline"):
                    canvas.line([x, y + high - 2, x + wide * cells, y + high - 2], fill=f"#{fore}")
                column += cells
    image.save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", default="200x50,120x40,80x24,60x15")
    arguments = parser.parse_intermixed_args()
    os.makedirs(arguments.folder, exist_ok=True)
    for name in arguments.names or SCENES:
        command, keys = SCENES[name]
        for text in arguments.sizes.split(","):
            size = tuple(int(number) for number in text.split("x"))
            terminal = Terminal(size, f"{os.path.abspath(arguments.binary)} {command}")
            try:
                for key, shown in keys:
                    if key:
                        terminal.run("send-keys", "-t", "t", key)
                    terminal.wait(shown)
                time.sleep(0.3)
                path = os.path.join(arguments.folder, f"{name}-{text}.png")
                draw(terminal.run("capture-pane", "-e", "-p", "-t", "t"), size, path)
                print(path)
            finally:
                terminal.close()


if __name__ == "__main__":
    main()
