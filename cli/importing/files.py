"""Lines of slurm.conf and gres.conf, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from cli.errors import Failure
from images.common.slurm_records import expand

_PAIR = re.compile(r'(?<![^\s=])([^\s=]+)\s*=\s*("[^"]*"|\S+)')  # from a word's begin: a line may have megabytes
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_MOST_HOSTS = 65_536
"""Names in one host list at most, as in Slurm itself (MAX_RANGE)."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """`key=value` in a line of a file."""

    file: str
    line: int
    """From 1; of lines that a backslash joins, the first."""
    key: str
    value: str

    @property
    def text(self) -> str:
        """As it is written, shortened."""
        return f"{self.key}={self.value[:60]}" if self.key else self.value[:60]

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.file}:{self.line}"


Line = dict[str, Parameter]
"""A line's pairs, by keys in small letters; the first is what the line is about."""


def read_lines(path: Path, above: tuple[Path, ...] = ()) -> Iterator[list[Parameter]]:
    """Pairs of each line of slurm.conf, and of the files that it includes. Raises Failure.

    A word without `=` is a pair without a key, and so is a line in which a quote is not closed.
    """
    if path.resolve() in above:
        raise Failure(f"{path} includes itself, by way of {', '.join(map(str, above))}")
    for number, text in _logical(read_text(path)):
        if include := _INCLUDE.fullmatch(text):
            yield from read_lines(_included(include[1], path, number), (*above, path.resolve()))
            continue
        closed = text.count('"') % 2 == 0
        pairs = [(key, value.strip('"')) for key, value in _PAIR.findall(text)] if closed else []
        if rest := " ".join((_PAIR.sub(" ", text) if closed else text).split()):
            pairs.append(("", rest))
        if pairs:
            yield [Parameter(file=str(path), line=number, key=key, value=value) for key, value in pairs]


def read_text(path: Path) -> str:
    """What a file has. Raises Failure."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None
    if "\0" in text:
        raise Failure(f"{path} is no text in UTF-8")
    return text


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where a backslash ends one, with the number of the first."""
    held, first = "", 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        first = first or number
        bare = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        held += bare.removesuffix("\\")
        if not bare.endswith("\\"):
            yield first, held.replace("\\#", "#").strip()
            held, first = "", 0


def _included(name: str, path: Path, number: int) -> Path:
    """Beside the file that includes it, even if the old cluster had it in another directory."""
    for candidate in (path.parent / name, path.parent / Path(name).name):
        if candidate.is_file():
            return candidate
    raise Failure(f"{path}:{number} includes {name}, which is not there", hint=f"put it beside {path}")


def hosts(listed: str) -> list[str]:
    """Names in a host list, `rack[0-3]node[01-16],login`. Raises ValueError where it is none."""
    found: list[str] = []
    if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", listed)):
        raise ValueError(f"{listed[:60]}: the bracket is not {'closed' if '[' in listed else 'opened'}")
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", listed):
        pieces = [_alternatives(piece) for piece in re.findall(r"[^\[]*\[[^\]]*\]|[^\[\]]+", part.strip())]
        if len(found) + prod(map(len, pieces)) > _MOST_HOSTS:
            raise ValueError("names too many hosts")
        found += ["".join(names) for names in product(*pieces)]
    return list(dict.fromkeys(found))


def _alternatives(piece: str) -> tuple[str, ...]:
    """`node[1-3]` in numbers' order; what has no bracket stands for itself."""
    for first, last in re.findall(r"(\d+)-(\d+)", piece.partition("[")[2]):
        if int(last) - int(first) > _MOST_HOSTS:
            raise ValueError("names too many hosts")
        if int(last) < int(first):
            raise ValueError(f"{first}-{last} runs backwards")
    if not re.fullmatch(r"[^\[]*(\[\d+(-\d+)?(,\d+(-\d+)?)*\])?", piece):
        raise ValueError(f"{piece[:60]}: in brackets are numbers, as in [1-3,7]")
    return expand(piece) if "[" in piece else (piece,)
