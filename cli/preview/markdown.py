"""A preview as one comment for a pull request.

Whoever opens a pull request chooses much of what stands in a preview: names, settings, whole files. So all of that is
inside fenced blocks, with fences longer than anything in them and one line for each line that we print. There Markdown
knows no markup, no mentions, no links, and GitLab no quick actions. Outside of them stand only words of ours.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from cli.change.change import Change, PropertyChange
from cli.change.effects import Effect
from cli.change.jobs import lines as job_lines
from cli.preview.document import Preview
from cli.preview.summary import lines as summary_lines
from cli.preview.text import around_difference, changed_lines, counted

LIMIT = 65_000
"""Bytes of a comment at most. GitHub refuses more than 65,536 characters."""

_SECTION = 9_000
"""Bytes that a section before the objects may have, so that all of them are in the comment."""

_WIDTH = 110
"""Columns of running text: blocks are not wrapped by those who show them."""

_LONGEST = 400
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
    """The preview as a comment of at most LIMIT bytes. The same preview is always the same comment."""
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
    after = [_cut(line) for line in summary_lines(preview.summary)]
    if preview.summary_before is None:
        return after
    before = [_cut(line) for line in summary_lines(preview.summary_before)]
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
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}... ({len(plain)} characters)"


def _plain(text: str) -> str:
    """The text in one line: what ends one, what is invisible and what turns the direction of reading is spelled out."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
