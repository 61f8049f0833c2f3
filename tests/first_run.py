"""The moving picture of README.md: `python -m tests.first_run --record` makes it anew, as root and after `make down`.

It runs `make up` and a login in a terminal of its own, keeps what they print with its times (asciinema's format,
version 2), and draws docs/images/first-run.svg of it. `python -m tests.first_run CAST` draws a recording again.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "first-run.svg"
CAST = ROOT / ".slurmstack" / "first-run.cast"

SESSION = (("make up", ()), (".venv/bin/slurmstack login alice", ("srun -N2 hostname", "exit")))
"""Commands of the administrator, each with what is typed at the prompts of the program that it starts."""

COLUMNS, ROWS = 92, 26
LONGEST_S, LAST_S = 1.6, 6.0
"""What a wait may take in the picture, and how long its end is shown before it begins again, seconds."""
MOST_FRAMES = 6
"""Frames of one wait: enough to see that something moves."""

_LETTER, _LINE, _PAD, _HEAD = 8.4, 18, 14, 30
_TOKEN = re.compile(r"\x1b\[([?\d;]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()].|\x1b[=>78]|[^\x1b]", re.DOTALL)
_ADDRESS = re.compile(r"https?://\S+ ?")
"""Of the mirror that this machine has used, which is nobody else's."""
_UNFINISHED = re.compile(r"\x1b(\[[?\d;]*|\][^\x07\x1b]*)?$")
_SPINNER = re.compile("[\u2801-\u28ff]")
_PROMPT = re.compile(r"[$#] (\x1b\[[?\d;]*[a-z])*$")
_STYLE = """text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre}
.b{font-weight:bold}.d{fill:#8794a5}.c1{fill:#ff7b72}.c2{fill:#7ee787}.c3{fill:#f2cc60}.c4{fill:#79c0ff}.c5{fill:#d2a8ff}
.c6{fill:#76e3ea}"""

Event = tuple[float, str]
Line = tuple[tuple[str, str], ...]
"""Pieces of a line: the classes of their style, and their text."""


class Screen:
    """As much of a terminal as `make up`, ssh and bash use."""

    def __init__(self) -> None:
        self._cells: list[dict[int, tuple[str, str]]] = [{}]
        self._row, self._column, self._style, self._rest = 0, 0, "", ""

    def feed(self, text: str) -> None:
        """Take what a program has printed; a sequence that is not whole yet waits for its end."""
        text = self._rest + text
        whole = _UNFINISHED.sub("", text)
        self._rest = text[len(whole) :]
        for token in _TOKEN.finditer(whole):
            if token[2]:
                self._control(token[2], [int(number or 0) for number in token[1].lstrip("?").split(";")])
            elif len(token[0]) == 1:
                self._put(token[0])

    def _put(self, letter: str) -> None:
        if letter == "\n" or (letter.isprintable() and self._column == COLUMNS):
            self._move(self._row + 1, self._column if letter == "\n" else 0)
        if letter == "\r":
            self._column = 0
        elif letter == "\b":
            self._column = max(0, self._column - 1)
        elif letter.isprintable():
            self._cells[self._row][self._column] = (self._style, letter)
            self._column += 1

    def _move(self, row: int, column: int) -> None:
        self._row, self._column = max(0, row), max(0, column)
        self._cells += [{} for _ in range(self._row + 1 - len(self._cells))]

    def _control(self, kind: str, numbers: list[int]) -> None:
        by = numbers[0] or 1
        if kind == "m":
            for number in numbers:
                self._styled(number)
        elif kind in "ABCD":
            down, right = {"A": (-by, 0), "B": (by, 0), "C": (0, by), "D": (0, -by)}[kind]
            self._move(self._row + down, self._column + right)
        elif kind == "K":
            keep = {0: range(self._column), 1: range(self._column + 1, COLUMNS), 2: range(0)}[numbers[0]]
            self._cells[self._row] = {at: cell for at, cell in self._cells[self._row].items() if at in keep}

    def _styled(self, number: int) -> None:
        names = {1: "b", 2: "d", **{base + color: f"c{color}" for base in (30, 90) for color in range(1, 7)}}
        kept = [] if number == 0 else self._style.split()
        self._style = " ".join([*kept, names[number]] if number in names else kept)

    def lines(self) -> tuple[Line, ...]:
        """What is to be seen: the last lines, without their empty ends."""
        return tuple(map(_pieces, self._cells[-ROWS:]))


def _pieces(cells: dict[int, tuple[str, str]]) -> Line:
    row = [cells.get(at, ("", " ")) for at in range(max(cells, default=-1) + 1)]
    # A letter of the spinner is a piece of its own: no font has it as wide as its others.
    parts = groupby(row, lambda cell: (cell[0], bool(_SPINNER.match(cell[1]))))
    return tuple((style, "".join(letter for _, letter in part)) for (style, _), part in parts)


def settled(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines above the first that tells of work in progress: as long as these stay, nothing but time goes by."""
    working = (number for number, line in enumerate(lines) if any(_SPINNER.match(text) for _, text in line))
    return tuple(lines[: next(working, len(lines))])


def film(events: Sequence[Event]) -> list[tuple[float, tuple[Line, ...]]]:
    """Screens, each with the seconds for which it is shown: a wait of minutes takes LONGEST_S at most."""
    screen, seen = Screen(), list[tuple[float, tuple[Line, ...]]]()
    for at, text in events:
        screen.feed(text)
        seen.append((at, screen.lines()))
    shown = []
    waits = [list(wait) for _, wait in groupby(seen, lambda item: settled(item[1]))]
    ends = [wait[0][0] for wait in waits[1:]]
    for wait, end in zip_longest(waits, ends):
        chosen = wait[:: -(-len(wait) // MOST_FRAMES)]
        played = LAST_S if end is None else min(end - wait[0][0], LONGEST_S)
        shown += [(max(played / len(chosen), 0.02), lines) for _, lines in chosen]
    return shown


def draw(events: Sequence[Event]) -> str:
    """The picture: all screens below each other, of which a window shows one at a time. No script, no other file."""
    shown = film(events)
    width, height = round(COLUMNS * _LETTER) + 2 * _PAD, ROWS * _LINE + _PAD
    total, at = sum(seconds for seconds, _ in shown), 0.0
    names: dict[Line, str] = {}
    steps, screens = [], []
    for number, (seconds, lines) in enumerate(shown):
        steps.append(f"{100 * at / total:.3f}%{{transform:translateY({-number * height}px)}}")
        at += seconds
        for row, line in enumerate(lines):
            if line:
                name = names.setdefault(line, f"l{len(names)}")
                screens.append(f'<use href="#{name}" y="{number * height + (row + 1) * _LINE}"/>')
    known = "\n".join(f'<g id="{name}">{_text(line)}</g>' for line, name in names.items())
    dots = "".join(f'<circle cx="{20 + 18 * place}" cy="16" r="5" fill="#4b5666"/>' for place in range(3))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + _HEAD}" role="img">
<title>make up, then a login and srun on two nodes</title>
<style>{_STYLE}
.f{{animation:f {total:.2f}s steps(1,end) infinite}}
@keyframes f{{{"".join(steps)}}}
@media (prefers-reduced-motion:reduce){{.f{{animation:none;transform:translateY({height - len(shown) * height}px)}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1520"/>{dots}
<defs>{known}</defs>
<svg x="{_PAD}" y="{_HEAD}" width="{width - _PAD}" height="{height}"><g class="f">{"".join(screens)}</g></svg>
</svg>
"""


def _text(line: Line) -> str:
    at, drawn = 0, []
    for style, printed in line:
        text = _ADDRESS.sub("", printed)
        if text.strip():
            place = f'x="{at * _LETTER:.1f}" textLength="{len(text) * _LETTER:.1f}" xml:space="preserve"'
            drawn.append(f"<text {place}{f' class={style!r}' if style else ''}>{escape(text)}</text>")
        at += len(printed)
    return "".join(drawn)


class Recorder:
    """A terminal in which commands run, and what they print with its times."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._started = time.monotonic()

    def _keep(self, text: str) -> None:
        self.events.append((time.monotonic() - self._started, text))
        print(text, end="", flush=True)

    def run(self, command: str, answers: Sequence[str]) -> None:
        """Type a command, run it in the project's folder, and type the answers at its prompts.

        Raises SystemExit if it fails: of that there is no picture.
        """
        for letter in f"# {command}\r\n":
            self._keep(letter)
            time.sleep(0.05)
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm-256color"
            os.environ.pop("NO_COLOR", None)
            os.execvp("sh", ["sh", "-c", f"exec {command}"])
        try:
            self._follow(terminal, list(answers))
        except OSError:  # Linux says so when the last program at the terminal has ended
            os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != 0:
            raise SystemExit(f"{command} ended with {status}")

    def _follow(self, terminal: int, answers: list[str]) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode

        def follow(seconds: float) -> bool:
            printed = bool(select.select([terminal], [], [], seconds)[0])
            if printed:
                self._keep(decode(os.read(terminal, 65536)))
            return printed

        while True:
            at_prompt = not follow(1.0) and _PROMPT.search("".join(text for _, text in self.events[-5:]))
            if at_prompt and answers:
                for letter in answers.pop(0) + "\r":
                    os.write(terminal, letter.encode())
                    follow(0.07)


def write_cast(events: Sequence[Event], path: Path) -> None:
    """Keep a recording in asciinema's format, version 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"version": 2, "width": COLUMNS, "height": ROWS})]
    path.write_text("\n".join([*lines, *(json.dumps([at, "o", text]) for at, text in events)]) + "\n", encoding="utf-8")


def read_cast(path: Path) -> list[Event]:
    """What was printed, with its times."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [(float(at), str(text)) for at, kind, text in rows if kind == "o"]


def main() -> None:
    """Record if asked to, and draw."""
    options = argparse.ArgumentParser(prog="python -m tests.first_run", description=__doc__)
    options.add_argument("cast", nargs="?", type=Path, default=CAST, help="the recording (default: %(default)s)")
    options.add_argument("--record", action="store_true", help="record it first: starts the local cluster")
    options.add_argument("--output", type=Path, default=PICTURE, help="the picture (default: %(default)s)")
    given = options.parse_args()
    if given.record:
        recorder = Recorder()
        for command, answers in SESSION:
            recorder.run(command, answers)
        write_cast(recorder.events, given.cast)
    given.output.write_text(draw(read_cast(given.cast)), encoding="utf-8")
    print(f"{given.output}: {given.output.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
