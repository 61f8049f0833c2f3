"""A preview as people read it: on a terminal, and as one comment for a pull request."""

from __future__ import annotations

import difflib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Annotated, Literal

import typer
from rich.markup import escape

from cli.change.change import SYMBOLS, Action, Change, PropertyChange, counts_of
from cli.change.effects import Effect
from cli.change.jobs import lines as job_lines
from cli.errors import USAGE, Failure
from cli.preview.document import Preview, Summary
from cli.text import say

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


def print_summary(summary: Summary) -> None:
    """The summary, line by line."""
    for line in summary.lines():
        say(escape(line))


def print_changes(found: Sequence[Change]) -> None:
    """Each object with what differs of it, and how many there are."""
    for change in found:
        _print_head(change.action, change.kind, change.name)
        _print_properties(change.properties)
    told = counted(counts_of(found))
    properties = sum(len(change.properties) for change in found)
    if properties:
        told += f" ({properties} changed propert{'y' if properties == 1 else 'ies'})"
    say(told or "no changes")


def print_effects(effects: Iterable[Effect]) -> None:
    """What would be replaced or deleted, what that loses, and what is refused with the way out."""
    for effect in effects:
        _print_head(effect.action, effect.kind, effect.name)
        _print_properties(effect.because)
        if effect.cost:
            say(f"      {escape(effect.cost)}")
        if effect.refused:
            say(f"      [red bold]refused:[/] {escape(effect.refused)}")


def print_notes(notes: Iterable[str]) -> None:
    """What people should know besides."""
    for note in notes:
        say(f"[yellow]note:[/] {escape(note)}")


def counted(counts: Mapping[str, int]) -> str:
    """`1 to create, 2 to update`; empty if there is nothing."""
    return ", ".join(f"{count} to {action}" for action, count in counts.items())


def _print_head(action: Action, kind: str, name: str) -> None:
    say(f"[{_STYLES[action]}]{SYMBOLS[action]:>2} {action:7}[/] {escape(kind)} [bold]{escape(name)}[/]")


def _print_properties(properties: Iterable[PropertyChange]) -> None:
    for line in (line for item in properties for line in described(item)):
        say(f"      {escape(line)}")


Form = Literal["text", "json", "markdown"]

MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print a comment for a pull request.")]
DetailedOption = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 4 if there is something to change.")
]


def form_of(*, as_json: bool, as_markdown: bool) -> Form:
    """What the options ask for. Raises Failure if that is two things."""
    if as_json and as_markdown:
        raise Failure("--json and --markdown contradict each other", hint="leave out one of them", code=USAGE)
    return "json" if as_json else "markdown" if as_markdown else "text"


def text_of(preview: Preview, form: Form) -> str:
    """The preview as JSON or as a comment."""
    return markdown(preview).rstrip("\n") if form == "markdown" else json.dumps(preview.as_data(), indent=1)


LIMIT = 65_000
"""Bytes of a comment at most. GitHub refuses more than 65,536 characters."""

_SECTION = 9_000
"""Bytes that a section before the objects may have, so that all of them are in the comment."""

_WIDTH = 110
"""Columns of running text: blocks are not wrapped by those who show them."""

_LONGEST_LINE = 400
"""Characters of one line at most; the rest of it is cut."""

_AGAINST = {
    "cluster": "Compared with the cluster as it is now.",
    "engine": "Compared by Pulumi with its state and with what is there now.",
    "file": "Compared with an earlier stack file. No cluster and no cloud was asked: what was changed by hand and "
    "which jobs run is not known here.",
}


def marker(stack: str) -> str:
    """The first line of a stack's comment, by which a pipeline finds the one it wrote before. It is not shown."""
    return f"<!-- slurmstack preview of {_word(stack)} -->"


def markdown(preview: Preview) -> str:
    """The preview as a comment of at most LIMIT bytes. The same preview is always the same comment.

    Whoever opens a pull request chooses much of what stands in a preview: names, settings, whole files. So all of that
    is inside fenced blocks, with fences longer than anything in them and one line for each line that we print. There
    Markdown knows no markup, no mentions, no links, and GitLab no quick actions. Outside stand only words of ours.
    """
    head = [marker(preview.stack), f"### slurmstack: {_headline(preview)}", "", _AGAINST[preview.against], ""]
    sections = [
        ("Refused", _prose(preview.refused), "text"),
        ("At risk", _risks(preview.effects), "diff"),
        ("Jobs", [_cut(line) for line in job_lines(preview.jobs)], "text"),
        ("Notes", _prose(preview.notes), "text"),
        ("Machines", _machines(preview), "diff" if preview.summary_before else "text"),
        ("Policy in Slurm", _policy(preview), "diff"),
    ]
    for title, lines, language in sections:
        if lines:
            head += [f"**{title}**", "", *_fenced(lines, language, _SECTION), ""]
    if preview.changes:
        head += [f"<details><summary>Objects: {counted(preview.counts())}</summary>", ""]
        tail = ["", "</details>", ""]
        left = LIMIT - _size([*head, *tail])
        head += [*_fenced([line for item in preview.changes for line in _object(item)], "diff", left), *tail]
    return "\n".join(head).rstrip("\n") + "\n"


def _headline(preview: Preview) -> str:
    name = f"stack `{_word(preview.stack)}`"
    counts = counted(preview.counts())
    if preview.outcome == "refused":
        count = len(preview.refused)
        return f"{name}: **refused**, {count} change{'s' if count > 1 else ''} cannot be made"
    if preview.outcome == "none":
        return f"{name}: no changes"
    return f"{name}: {counts or 'only the policy in Slurm changes'}"


def _word(stack: str) -> str:
    """The stack's name, which is a file's, of the characters that Pulumi allows in one."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", stack)[:100]


def _prose(texts: Sequence[str]) -> list[str]:
    return [line for text in texts for line in _wrapped(text, "* ")]


def _wrapped(text: str, lead: str) -> list[str]:
    wide = textwrap.wrap(_plain(text), _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
    return wide or [lead.rstrip()]


def _risks(effects: Sequence[Effect]) -> list[str]:
    found = []
    for effect in effects:
        if effect.cost:
            found.append(_cut(f"! {effect.action} {effect.kind} {effect.name}"))
            found += _wrapped(effect.cost, "    ")
            found += [line for item in effect.because for line in _property(item)]
    return found


def _machines(preview: Preview) -> list[str]:
    after = [_cut(line) for line in preview.summary.lines()]
    if preview.summary_before is None:
        return after
    before = [_cut(line) for line in preview.summary_before.lines()]
    return [line for line in difflib.ndiff(before, after) if not line.startswith("?")]


def _policy(preview: Preview) -> list[str]:
    policy = preview.policy
    if policy is None:
        return []
    # Without an answer of Slurm the lines are those of a first start: news only where the cluster is made or changed.
    lines = policy.changes if policy.compared or preview.changes else ()
    return [_cut(line) for line in (*lines, *policy.notes)]


_SIGNS = {"create": "+", "update": "!", "replace": "!", "delete": "-"}
"""What colours a line of a diff: green, orange, orange, red."""


def _object(change: Change) -> Iterator[str]:
    yield _cut(f"{_SIGNS[change.action]} {change.action} {change.kind} {change.name}")
    for item in change.properties:
        yield from _property(item)


def _property(item: PropertyChange) -> Iterator[str]:
    changed = changed_lines(item.old, item.new)
    if changed:
        yield _cut(f"    {item.path}:")
        for sign, line in changed:
            yield _cut(f"{sign}       {line}")
        return
    old, new = around_difference(*(None if each is None else _value(each) for each in (item.old, item.new)))
    if item.old is not None:
        yield _cut(f"-   {item.path}: {old}")
    if item.new is not None:
        yield _cut(f"+   {item.path}: {new}")
    if item.old is None and item.new is None:
        yield _cut(f"    {item.path}")


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fenced(lines: Sequence[str], language: str, size: int) -> list[str]:
    """The lines in a block of at most so many bytes. Where some are left out, the last line says how many."""
    longest = max((len(run.group()) for line in lines for run in re.finditer("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    room = size - 2 * len(fence) - len(language) - 80
    kept: list[str] = []
    for line in lines:
        room -= _size([line])
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    more = [f"# ... {left} more lines are left out; `slurmstack preview` prints all"] if left else []
    return [f"{fence}{language}", *kept, *more, fence]


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _cut(line: str) -> str:
    plain = _plain(line)
    return plain if len(plain) <= _LONGEST_LINE else f"{plain[:_LONGEST_LINE]}... ({len(plain)} characters)"


def _plain(text: str) -> str:
    """The text in one line: what ends one, what is invisible and what turns the direction of reading is spelled out."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
