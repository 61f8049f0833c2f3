"""Lines of slurm.conf and gres.conf, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from cli.errors import Failure

_PAIR = re.compile(r'(?<![^\s=])([^\s=]+)\s*=\s*("[^"]*"|\S+)')  # from a word's begin: a line may have megabytes
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_RANGES = re.compile(r"\[[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*\]")
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


Line = dict[str, Parameter]
"""A line's pairs, by keys in small letters; the first is what the line is about."""


def value_in(line: Line, key: str) -> str:
    """The value of a key; empty where it is not there."""
    return line[key].value if key in line else ""


def lines_of(key: str, lines: Iterable[Line]) -> Iterator[tuple[Parameter, Line]]:
    """Lines about what a key names: the name, and the line with what lines of the name DEFAULT say before it."""
    defaults: Line = {}
    for line in (line for line in lines if next(iter(line)) == key):
        if line[key].value.upper() == "DEFAULT":
            defaults |= line
        else:
            yield line[key], defaults | line


def read_lines(path: Path, above: tuple[Path, ...] = ()) -> Iterator[list[Parameter]]:
    """Pairs of each line of slurm.conf, and of the files that it includes. Raises Failure.

    A word without `=` is a pair without a key, and so is a line that begins with one or does not close a quote.
    """
    if path.resolve() in above:
        raise Failure(f"{path} includes itself, by way of {', '.join(map(str, above))}")
    for number, text in _logical(read_text(path)):
        if include := _INCLUDE.fullmatch(text):
            # Beside the file that includes it, even if the old cluster had it in another directory.
            beside = [path.parent / name for name in (include[1], Path(include[1]).name)]
            if not (there := [file for file in beside if file.is_file()]):
                why = "but Slurm takes no *: name each file" if "*" in include[1] else "which is not there beside it"
                raise Failure(f"{path}:{number} includes {include[1]}, {why}")
            yield from read_lines(there[0], (*above, path.resolve()))
            continue
        clear = _PAIR.match(text) and text.count('"') % 2 == 0
        pairs = [(key, value.strip('"')) for key, value in _PAIR.findall(text)] if clear else []
        if rest := " ".join((_PAIR.sub(" ", text) if clear else text).split()):
            pairs.append(("", rest))
        if pairs:
            yield [Parameter(file=str(path), line=number, key=key, value=value) for key, value in pairs]


def read_text(path: Path) -> str:
    """What a file has. Raises Failure."""
    try:
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror or error}") from None


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, joined where a backslash ends one, with the number of the first."""
    held, first = "", 1
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        held += bare.removesuffix("\\")
        if not bare.endswith("\\"):
            yield first, held.replace("\\#", "#").strip()
            held, first = "", number + 1


def hosts(listed: str) -> list[str]:
    """Names in a host list, `rack[0-3]node[01-16],login`; where it is none, all of it as one name."""
    if re.search(r"[\[\]=]", _RANGES.sub("", listed)):
        return [listed]
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", listed):
        pieces = [_numbers(one) if at % 2 else [one] for at, one in enumerate(re.split(r"[\[\]]", part.strip()))]
        if not 0 < prod(map(len, pieces)) <= _MOST_HOSTS - len(found):
            return [listed]
        found += map("".join, product(*pieces))
    return list(dict.fromkeys(found))


def _numbers(ranges: str) -> list[str]:
    """`08-10,12`; none where one runs backwards, or has too many."""
    ends = [(first, int(first), int(last or first)) for first, last in re.findall(r"([0-9]+)-?([0-9]*)", ranges)]
    if any(not 0 <= last - number < _MOST_HOSTS for _, number, last in ends):
        return []
    return [str(one).zfill(len(first)) for first, number, last in ends for one in range(number, last + 1)]
