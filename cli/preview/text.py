"""A preview as people read it: on a terminal, and as one comment for a pull request. Both have the same lines."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from cli.change.change import Action, Change, PropertyChange, counts_of
from cli.change.effects import Effect
from cli.change.jobs import lines as job_lines
from cli.errors import USAGE, Failure
from cli.preview.document import Preview
from cli.preview.policy import PolicyPlan

_SIGNS: Mapping[Action, str] = {"create": "+", "update": "!", "replace": "!", "delete": "-"}
"""What colours a line of a diff: green, orange, orange, red."""

_LONGEST = 300
"""Characters of a value that are shown."""
_BEFORE = 40
"""Characters before the first difference of two long values."""
_MOST_LINES = 40
"""Lines of a changed text that are shown."""


def change_lines(found: Sequence[Change]) -> Iterator[str]:
    """Each object with what differs of it."""
    for change in found:
        yield _head(change.action, change.kind, change.name)
        for item in change.properties:
            yield from property_lines(item)


def effect_lines(effects: Iterable[Effect]) -> Iterator[str]:
    """What would be replaced or deleted, and what that loses. What is refused stands in the refusal."""
    for effect in effects:
        if effect.cost:
            yield _head(effect.action, effect.kind, effect.name)
            for item in effect.because:
                yield from property_lines(item)
            yield f"    {plain(effect.cost)}"


def beside_objects(preview: Preview) -> list[str]:
    """All but the objects."""
    return [
        *effect_lines(preview.effects),
        *map(plain, job_lines(preview.jobs)),
        *(f"note: {plain(note)}" for note in preview.notes),
        *_policy(preview.policy),
    ]


def _policy(planned: PolicyPlan | None) -> list[str]:
    found = [plain(line) for line in (*planned.changes, *planned.notes)] if planned is not None else []
    return ["policy in Slurm:", *found] if found else []


def property_lines(item: PropertyChange) -> Iterator[str]:
    """A changed property: what differs of long values, and of texts the lines that do."""
    path, old, new = plain(item.path), item.old, item.new
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield f"    {path}:"
        told = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))
        changed = [line for line in told[2:] if not line.startswith("@@")]
        yield from (f"{line[0]}       {_short(line[1:])}" for line in changed[:_MOST_LINES])
        if len(changed) > _MOST_LINES:
            yield f"        ... {len(changed) - _MOST_LINES} more changed lines; --json has all"
        return
    before, after = around_difference(*("" if each is None else _text(each) for each in (old, new)))
    if old is not None:
        yield f"-   {path}: {before}"
    if new is not None:
        yield f"+   {path}: {after}"
    if old is None and new is None:
        yield f"    {path}"


def around_difference(old: str, new: str) -> tuple[str, str]:
    """Both texts, or, if one is long, a part of each from shortly before their first difference on."""
    if max(len(old), len(new)) <= _LONGEST:
        return old, new
    alike = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(alike - _BEFORE, 0)
    return _short(old, start), _short(new, start)


def _short(text: str, start: int = 0) -> str:
    text = plain(text)
    part = text[start : start + _LONGEST]
    return text if part == text else f"{'...' if start else ''}{part}... ({len(text)} characters)"


def _text(value: Any) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _head(action: Action, kind: str, name: str) -> str:
    return plain(f"{_SIGNS[action]} {action} {kind} {name}")


def plain(text: str) -> str:
    """The text in one line: what ends one, what is invisible and what turns the direction of reading is spelled out."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def counted(found: Sequence[Change]) -> str:
    """`1 to create, 2 to update`."""
    return ", ".join(f"{count} to {action}" for action, count in counts_of(found).items()) or "no changes"


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


LIMIT = 65_000
"""Bytes of a comment at most. GitHub refuses more than 65,536 characters."""


def markdown(preview: Preview) -> str:
    """The preview as a comment of at most LIMIT bytes. The same preview is always the same comment.

    Its first line is not shown: by that a pipeline finds the comment that it wrote before. Whoever opens a pull
    request chooses much of what stands in a preview: names, settings, whole files. So all of that is in one fenced
    block, with a fence longer than anything in it and one line for each line that we print. There Markdown knows no
    markup, no mentions, no links, and GitLab no quick actions. Outside stand only words of ours.
    """
    stack = re.sub(r"[^A-Za-z0-9_.-]+", "_", preview.stack)[:100]  # a file's name, of the characters that Pulumi allows
    said = counted(preview.changes)
    if preview.outcome == "refused":
        said = f"**refused**, {len(preview.refused)} to correct"
    elif preview.outcome == "changes" and not preview.changes:
        said = "only the policy in Slurm changes"
    head = f"<!-- slurmstack preview of {stack} -->\n### slurmstack: stack `{stack}`: {said}"
    if preview.against == "file":
        head += "\n\nNo cluster was asked: what was changed by hand and which jobs run is not known here."
    refused = [f"! refused: {plain(reason)}" for reason in preview.refused]
    lines = [*refused, *beside_objects(preview), *change_lines(preview.changes)]
    return "\n".join([head, "", *_fenced(lines)]) if lines else head


def _fenced(lines: Sequence[str]) -> list[str]:
    """The lines in a block. Where some are left out, the last line says how many."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    room, kept = LIMIT - 2 * len(fence) - 500, list[str]()
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    more = [f"# ... {left} more lines are left out; `slurmstack preview` prints all"] if left else []
    return [f"{fence}diff", *kept, *more, fence]
