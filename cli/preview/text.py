"""Changes as they are printed to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from rich.console import Console
from rich.markup import escape

from cli.change.change import SYMBOLS, Action, Change, PropertyChange, counts_of
from cli.change.effects import Effect

_STYLES: Mapping[Action, str] = {"create": "green", "update": "yellow", "replace": "magenta", "delete": "red"}

_LONGEST = 300
"""Characters of a value that are printed to people."""
_BEFORE = 40
"""Characters before the first difference of two long values."""
_MOST_LINES = 40
"""Lines of a changed text that are printed to people."""


def described(item: PropertyChange) -> list[str]:
    """A changed property as it is printed to people: what differs of long values, and of texts the lines that do."""
    changed = changed_lines(item.old, item.new)
    if changed:
        left = len(changed) - _MOST_LINES
        more = [f"  ... {left} more changed lines; --json has all"] if left > 0 else []
        return [f"{item.path}:", *(f"  {sign} {line}" for sign, line in changed[:_MOST_LINES]), *more]
    old, new = around_difference(_text(item.old), _text(item.new))
    return [f"{item.path}: {old} => {new}"]


def changed_lines(old: object, new: object) -> list[tuple[str, str]]:
    """The lines that differ with `-` or `+`, if both are texts and one has several lines; long lines are cut."""
    if not isinstance(old, str) or not isinstance(new, str) or "\n" not in old + new:
        return []
    before, after = old.splitlines(), new.splitlines()
    found: list[tuple[str, str]] = []
    for action, start, end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
        if action == "equal":
            continue
        # Line by line as far as there are two to compare: what differs may be far to the right.
        pairs = [around_difference(*pair) for pair in zip_longest(before[start:end], after[new_start:new_end])]
        found += [("-", line) for line, _ in pairs[: end - start]]
        found += [("+", line) for _, line in pairs[: new_end - new_start]]
    return found


def around_difference(old: str | None, new: str | None) -> tuple[str, str]:
    """Both texts as they are, or, if one is long, a part of each from shortly before their first difference on."""
    old, new = old or "", new or ""
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    alike = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(alike - _BEFORE, 0)
    return _part(old, start), _part(new, start)


def _part(text: str, start: int) -> str:
    part = text[start : start + _LONGEST]
    if part == text:
        return text
    end = "..." if start + _LONGEST < len(text) else ""
    return f"{'...' if start else ''}{part}{end} ({len(text)} characters)"


def _text(value: object) -> str:
    if value is None:
        return "(absent)"
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value)


def print_changes(found: Sequence[Change]) -> None:
    """Each object with what differs of it, and how many there are."""
    for change in found:
        _print_head(change.action, change.kind, change.name)
        _print_properties(change.properties)
    told = counted(counts_of(found))
    properties = sum(len(change.properties) for change in found)
    if properties:
        told += f" ({properties} changed propert{'y' if properties == 1 else 'ies'})"
    _print(told or "no changes")


def print_effects(effects: Iterable[Effect]) -> None:
    """What would be replaced or deleted, what that loses, and what is refused with the way out."""
    for effect in effects:
        _print_head(effect.action, effect.kind, effect.name)
        _print_properties(effect.because)
        if effect.cost:
            _print(f"      {escape(effect.cost)}")
        if effect.refused:
            _print(f"      [red bold]refused:[/] {escape(effect.refused)}")


def print_notes(notes: Iterable[str]) -> None:
    """What people should know besides."""
    for note in notes:
        _print(f"[yellow]note:[/] {escape(note)}")


def counted(counts: Mapping[str, int]) -> str:
    """`1 to create, 2 to update`; empty if there is nothing."""
    return ", ".join(f"{count} to {action}" for action, count in counts.items())


def _print_head(action: Action, kind: str, name: str) -> None:
    _print(f"[{_STYLES[action]}]{SYMBOLS[action]:>2} {action:7}[/] {escape(kind)} [bold]{escape(name)}[/]")


def _print_properties(properties: Iterable[PropertyChange]) -> None:
    for line in (line for item in properties for line in described(item)):
        _print(f"      {escape(line)}")


def _print(line: str) -> None:
    Console(highlight=False, emoji=False).print(line, soft_wrap=True)
