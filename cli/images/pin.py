"""Write registry and digests into a stack file, and leave everything else in it as it is.

The text is edited at the places that YAML's own parser names, so comments, order, quotes and line ends stay. The result
is read again and compared with what was wanted before the file is replaced: where this file is written in a way that
cannot be edited so, nothing happens and the lines to add are shown.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from cli.errors import Failure
from cli.images.names import ImageNames
from config.load import PROJECT, load_config
from slurm.images import ROLES

KEY = f"{PROJECT}:images"
_STEP = 2
"""Columns of one level of indentation, as in the stack files of this project."""


def snippet(names: ImageNames, digests: Mapping[str, str], indent: int = 0) -> str:
    """The section as a stack file has it."""
    lines = [f"{KEY}:", *_section_lines({"registry": names.registry}, digests, _STEP)]
    return "\n".join(" " * indent + line for line in lines)


def pin(file: Path, names: ImageNames, digests: Mapping[str, str]) -> None:
    """Write registry and digests into a stack file, at once or not at all. Raises Failure if that cannot be done."""
    target = file.resolve()
    with target.open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    wanted = yaml.safe_load(text)
    section = {**(wanted["config"].get(KEY) or {}), "registry": names.registry, "digests": dict(digests)}
    wanted["config"][KEY] = section
    try:
        edited = edit(text, names.registry, digests)
        fits = yaml.safe_load(edited) == wanted
    except (_UnfitError, yaml.YAMLError):
        fits = False
    if not fits:
        raise Failure(
            f"{file} is written in a way that cannot be edited without loss",
            hint=f"put this below `config:` in it, in place of what it has of {KEY}:\n{snippet(names, digests, _STEP)}",
        )
    prefix = f"{PROJECT}:"
    load_config({key.removeprefix(prefix): value for key, value in wanted["config"].items() if key.startswith(prefix)})
    _replace(target, edited)


def edit(text: str, registry: str, digests: Mapping[str, str]) -> str:
    """The text of a stack file with another registry and other digests. Raises _UnfitError for what it cannot edit."""
    config = _value(yaml.compose(text, Loader=yaml.SafeLoader), "config")
    if not isinstance(config, yaml.MappingNode) or config.flow_style:
        raise _UnfitError
    column = config.value[0][0].start_mark.column
    section = next((value for key, value in config.value if key.value == KEY), None)
    if section is None:
        lines = [f"{KEY}:", *_section_lines({"registry": registry}, digests, _STEP)]
        edits = [_insertion(text, config, [" " * column + line for line in lines])]
    elif isinstance(section, yaml.MappingNode) and not section.flow_style:
        edits = _block_edits(text, section, registry, digests)
    else:
        others = {**(_plain(text, section) or {}), "registry": registry}
        others.pop("digests", None)
        edits = _block_instead(text, section, _section_lines(others, digests, column + _STEP))
    return _apply(text, edits)


class _UnfitError(Exception):
    """The text has a form that is not edited here."""


@dataclass(frozen=True)
class _Edit:
    """Replaces the text from `start` to `end`."""

    start: int
    end: int
    new: str


def _apply(text: str, edits: Sequence[_Edit]) -> str:
    """From the end to the start, so that places stay true; of insertions at one place the first comes first."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for _, change in sorted(enumerate(edits), key=lambda item: (item[1].start, item[0]), reverse=True):
        text = text[: change.start] + change.new.replace("\n", newline) + text[change.end :]
    return text


def _value(node: yaml.Node | None, name: str) -> yaml.Node:
    found = [value for key, value in node.value if key.value == name] if isinstance(node, yaml.MappingNode) else []
    if not found:
        raise _UnfitError
    return cast("yaml.Node", found[0])


def _plain(text: str, node: yaml.Node) -> Any:
    return yaml.safe_load(text[node.start_mark.index : node.end_mark.index])


def _section_lines(others: Mapping[str, Any], digests: Mapping[str, str], indent: int) -> list[str]:
    dumped = yaml.safe_dump(dict(others), default_flow_style=False, width=1000, sort_keys=False).splitlines()
    return [" " * indent + line for line in (*dumped, "digests:")] + _digest_lines(digests, ROLES, indent + _STEP)


def _digest_lines(digests: Mapping[str, str], roles: Iterable[str], indent: int) -> list[str]:
    return [f"{' ' * indent}{role}: {digests[role]}" for role in roles]


def _block_edits(text: str, section: yaml.MappingNode, registry: str, digests: Mapping[str, str]) -> list[_Edit]:
    """Change the values that are there, add those that are not."""
    indent = section.value[0][0].start_mark.column
    present: dict[str, yaml.Node] = {key.value: value for key, value in section.value}
    edits = []
    if "registry" in present:
        edits.append(_new_value(present["registry"], registry))
    else:
        edits.append(_insertion(text, section, [f"{' ' * indent}registry: {registry}"]))
    old = present.get("digests")
    if old is None:
        lines = [f"{' ' * indent}digests:", *_digest_lines(digests, ROLES, indent + _STEP)]
        edits.append(_insertion(text, section, lines))
    elif isinstance(old, yaml.MappingNode) and not old.flow_style:
        there = {key.value: value for key, value in old.value}
        edits += [_new_value(value, digests[role]) for role, value in there.items()]
        missing = [role for role in ROLES if role not in there]
        edits.append(_insertion(text, old, _digest_lines(digests, missing, old.value[0][0].start_mark.column)))
    else:
        edits += _block_instead(text, old, _digest_lines(digests, ROLES, indent + _STEP))
    return edits


def _new_value(node: yaml.Node, value: str) -> _Edit:
    """An empty value begins right after its colon."""
    space = " " if node.start_mark.index == node.end_mark.index else ""
    return _Edit(node.start_mark.index, node.end_mark.index, space + value)


def _block_instead(text: str, node: yaml.Node, lines: Sequence[str]) -> list[_Edit]:
    """Lines below the key instead of `{...}` or nothing beside it; a comment at the end of that line stays there."""
    start, end = node.start_mark.index, node.end_mark.index
    if "#" in text[start:end]:
        raise _UnfitError  # a comment inside would be lost
    return [_Edit(len(text[:start].rstrip(" ")), end, ""), _insertion(text, node, lines)]


def _insertion(text: str, node: yaml.Node, lines: Sequence[str]) -> _Edit:
    """Lines after the last one of a node. Comments that follow it belong to what comes next."""
    end = _last(node).end_mark
    place = end.index
    if end.column > 0 or place == 0:
        found = text.find("\n", place)
        place = len(text) if found < 0 else found + 1
    new = "".join(f"{line}\n" for line in lines)
    unfinished = new and place > 0 and text[place - 1] != "\n"
    return _Edit(place, place, f"\n{new}" if unfinished else new)


def _last(node: yaml.Node) -> yaml.Node:
    """The scalar or `{...}` that a node ends with: only those end where they seem to."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        key, node = last if isinstance(last, tuple) else (last, last)
        if node.start_mark.index == node.end_mark.index:
            return cast("yaml.Node", key)
    return node


def _replace(file: Path, text: str) -> None:
    """A reader sees the old text or the new one, never half of it; so does the next run after a power cut."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(file.stat().st_mode & 0o777)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
