"""Wrong stack files, and such as are just right: what is changed in a stack that is right, and which key is named.

Each file says, for a stack of `tests.stacks`, what holds (a sentence), and below it the changes that show it:

    - {login.size: two}                            a refusal that names the key that was changed
    - [{licenses: {a: x}}, licenses.a]             one that names another key
    - [{login.siz: 2}, login.siz, size]            and a text that the message has in quotes, such as the nearest name
    - [{login.size: 3}, taken]                     no refusal at all
    - with: {login.cpu: 2}                         changed in all that follows

`!each [a, b]` stands for a change with `a` and one with `b`, `!gone ''` for a key that is left out, and
`!times [x, 3, y]` for xxxy. What each refusal says to its end is in `messages.txt`. After a change of words that is
meant, `python -m tests.unit.config.cases` writes it anew: read what `git diff` then shows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from config import ConfigError, load_config
from tests import stacks

DIRECTORY = Path(__file__).parent
MESSAGES = DIRECTORY / "messages.txt"
TAKEN = "taken"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One stack file."""

    changes: dict[str, Any]
    """Dotted paths and their values."""

    sections: dict[str, Any]
    """The whole stack."""

    named: tuple[str, ...]
    """The key of each refusal, in their order."""

    quoted: tuple[str, ...]
    """What the refusals have in quotes."""

    @property
    def told(self) -> list[str]:
        """Every refusal, as a reader sees it."""
        try:
            load_config(copy.deepcopy(self.sections))
        except ConfigError as error:
            return [str(problem) for problem in error.problems]
        return []


class _Gone:
    """In place of a key."""


class _Each(list[Any]):
    """In place of a value: several, one after another."""


class _Loader(yaml.SafeLoader):
    """YAML with our three tags."""


def _each(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> _Each:
    return _Each(loader.construct_sequence(node, deep=True))


def _times(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> str:
    text, count, *end = loader.construct_sequence(node)
    return str(text * count + "".join(end))


_Loader.add_constructor("!gone", lambda _loader, _node: _Gone())
_Loader.add_constructor("!each", _each)
_Loader.add_constructor("!times", _times)


@cache
def cases() -> dict[str, list[Case]]:
    """All cases, by their file and sentence."""
    found: dict[str, list[Case]] = {}
    for file in sorted(DIRECTORY.glob("*.yaml")):
        for stack, sentences in yaml.load(file.read_text(encoding="utf-8"), _Loader).items():  # ours
            for sentence, rows in sentences.items():
                found.setdefault(f"{file.stem}: {sentence}", []).extend(_cases(getattr(stacks, stack)(), rows))
    return found


def _cases(stack: dict[str, Any], rows: list[Any]) -> Iterator[Case]:
    for row in rows:
        if isinstance(row, dict) and [*row] == ["with"]:
            stack = _changed(stack, row["with"])
            continue
        changes, named, *quoted = row if isinstance(row, list) else (row, [*row])
        keys = () if named == TAKEN else (named,) if isinstance(named, str) else tuple(named)
        for one in _single(changes):
            yield Case(changes=one, sections=_changed(stack, one), named=keys, quoted=tuple(quoted))


def _single(changes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    several = [path for path, value in changes.items() if isinstance(value, _Each)]
    if not several:
        yield changes
    for path in several:
        yield from ({**changes, path: value} for value in changes[path])


def _changed(stack: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(stack)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at = changed
        for part in parents:
            if not isinstance(at.get(part), dict):
                at[part] = {}
            at = at[part]
        if isinstance(value, _Gone):
            del at[last]
        else:
            at[last] = copy.deepcopy(value)
    return changed


def written(line: str) -> str:
    """A refusal as it stands in the file: in one line, even where a key has two."""
    return line.replace("\n", "\\n")


@cache
def messages() -> dict[str, list[str]]:
    """What `messages.txt` has, by file and sentence."""
    found: dict[str, list[str]] = {}
    for line in MESSAGES.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            found[[*found][-1]].append(line.removeprefix("  "))
        else:
            found[line] = []
    return found
