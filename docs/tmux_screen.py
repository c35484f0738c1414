"""A program in tmux, and its screen as pieces of one look each: what draws pictures of the terminal UI has in common."""

import html
import os
import re
import subprocess
import sys
import tempfile
import time

# The sixteen colours of a dark terminal.
PALETTE = """1d2026 e06c75 98c379 e5c07b 61afef c678dd 56b6c2 d7dae0
             7f848e e8868f a9d18e f0d197 7fc1f5 d394e6 70cdd8 ffffff""".split()
FORE, BACK = PALETTE[7], PALETTE[0]
# Width of a letter and height of a line in a picture.
CELL, LINE = 8.4, 17


class Terminal:
    """A program in a terminal of some size, with a home of its own."""

    def __init__(self, size, command, environment=""):
        self.home = tempfile.TemporaryDirectory()
        # A server of its own: one that is still ending would take the next session with it.
        self.socket = os.path.basename(self.home.name)
        home = self.home.name
        line = (
            f"env -u NO_COLOR TERM=screen-256color HOME={home} XDG_STATE_HOME={home}/state "
            f"XDG_CONFIG_HOME={home}/config {environment} {command}; echo ended with $?; exec cat"
        )
        self.run("-f", "/dev/null", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-s", "t", line)

    def run(self, *arguments):
        done = subprocess.run(["tmux", "-L", self.socket, *arguments], capture_output=True, text=True, check=False)
        return done.stdout

    def press(self, keys):
        """Presses keys, each with a text that must be on the screen before the next; returns the screen."""
        for key, text in keys:
            if key:
                self.run("send-keys", "-t", "t", key)
            shown = ""
            for _ in range(600):
                shown = self.run("capture-pane", "-p", "-t", "t")
                if text in shown:
                    break
                time.sleep(0.1)
            else:
                sys.exit(f"`{text}` did not come:\n{shown}")
        time.sleep(0.4)
        return carried(self.run("capture-pane", "-e", "-N", "-p", "-t", "t"))

    def close(self):
        self.run("kill-server")
        self.home.cleanup()


def carried(capture):
    """Gives a capture in which each line begins with the look that tmux leaves on from the line before."""
    look, lines = "", []
    for line in capture.split("\n"):
        lines.append(look + line)
        for code in re.findall(r"\x1b\[[0-9;:]*m", line):
            look = "" if code in ("\x1b[0m", "\x1b[m") else look + code
    return "\n".join(lines)


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


def pieces(line, fore=FORE, back=BACK):
    """Gives each piece of a captured line: its text, its colour, its ground, and what else it is (bold, underline)."""
    style = {}
    for piece in re.split(r"(\x1b\[[0-9;:]*m|\x1b\([A-Z0]|[\x0e\x0f])", line):
        if piece.startswith("\x1b["):
            style = apply(style, [int(code or 0) for code in re.split("[;:]", piece[2:-1])])
        elif piece and not piece.startswith(("\x1b", "\x0e", "\x0f")):
            front, ground = style.get("fore", fore), style.get("back", back)
            if style.get("dim"):
                front = mix(front, ground)
            if style.get("reverse"):
                front, ground = ground, front
            yield piece, front, ground, style


def opening(columns, rows):
    """Gives the start of a picture of a screen."""
    width, height = columns * CELL + 24, rows * LINE + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#{BACK}"/>'
    )


def drawn(line, y):
    """Gives the shapes and texts of a captured line whose letters stand on some height."""
    column = 0
    for piece, fill, ground, style in pieces(line):
        x, wide = 12 + column * CELL, len(piece) * CELL
        if ground != BACK:
            yield f'<rect x="{x:.1f}" y="{y - 13}" width="{wide:.1f}" height="{LINE}" fill="#{ground}"/>'
        if piece.strip():
            extra = ' font-weight="bold"' if style.get("bold") else ""
            extra += ' text-decoration="underline"' if style.get("underline") else ""
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="#{fill}"{extra} textLength="{wide:.1f}" '
                f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(piece)}</text>'
            )
        column += len(piece)
