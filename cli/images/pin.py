"""Write registry and digests into a stack file, and leave everything else in it as it is.

The text is edited at the places that YAML's own parser names, so comments, order, quotes and line ends stay. The result
is read again and compared with what was wanted before the file is replaced: where this file is written in a way that
cannot be edited so, nothing happens and the lines to add are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

import yaml

from cli.errors import Failure
from cli.images.names import ImageNames
from config.load import PROJECT, load_config
from local.files import write_whole
from slurm.images import ROLES

KEY = f"{PROJECT}:images"
_STEP = 2
"""Columns of one level of indentation, as in the stack files of this project."""


def snippet(names: ImageNames, digests: Mapping[str, str], indent: int = 0) -> str:
    """The section as a stack file has it."""
    return "\n".join(_lines(_wanted(names, digests), indent))


def pin(file: Path, names: ImageNames, digests: Mapping[str, str]) -> None:
    """Write registry and digests into a stack file, at once or not at all. Raises Failure if that cannot be done."""
    target = file.resolve()
    with target.open(encoding="utf-8", newline="") as stream:
        text = stream.read()
    new = _wanted(names, digests)
    wanted = yaml.safe_load(text)
    wanted["config"][KEY] = {**(wanted["config"].get(KEY) or {}), **new[KEY]}
    try:
        edited = edit(text, new)
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
    write_whole(target, edited, mode=target.stat().st_mode & 0o777)


def edit(text: str, wanted: Mapping[str, Any]) -> str:
    """The text of a stack file with these values in its configuration. Raises _UnfitError for what it cannot edit."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = [value for key, value in root.value if key.value == "config"] if isinstance(root, yaml.MappingNode) else []
    if not found or not _is_block(found[0]):
        raise _UnfitError
    return _apply(text, _edits(text, found[0], wanted))


def _wanted(names: ImageNames, digests: Mapping[str, str]) -> dict[str, Any]:
    return {KEY: {"registry": names.registry, "digests": {role: digests[role] for role in ROLES}}}


def _lines(values: Mapping[str, Any], indent: int) -> list[str]:
    dumped = yaml.safe_dump(dict(values), default_flow_style=False, indent=_STEP, width=1000, sort_keys=False)
    return [" " * indent + line for line in dumped.splitlines()]


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


def _is_block(node: yaml.Node) -> TypeGuard[yaml.MappingNode]:
    return isinstance(node, yaml.MappingNode) and not node.flow_style


def _edits(text: str, section: yaml.MappingNode, wanted: Mapping[str, Any]) -> list[_Edit]:
    """Change the values that are there, add those that are not."""
    column = section.value[0][0].start_mark.column
    present: dict[str, yaml.Node] = {key.value: value for key, value in section.value}
    edits = []
    for name, new in wanted.items():
        old = present.get(name)
        if old is None:
            continue
        if isinstance(new, str):
            edits.append(_new_value(old, new))
        elif _is_block(old):
            edits += _edits(text, old, new)
        else:
            others = yaml.safe_load(text[old.start_mark.index : old.end_mark.index]) or {}
            values = {**new, **{key: value for key, value in others.items() if key not in new}}
            ordered = sorted(values.items(), key=lambda item: isinstance(item[1], dict))
            edits += _block_instead(text, old, _lines(dict(ordered), column + _STEP))
    missing = {name: value for name, value in wanted.items() if name not in present}
    if missing:
        edits.append(_insertion(text, section, _lines(missing, column)))
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
    unfinished = place > 0 and text[place - 1] != "\n"
    return _Edit(place, place, ("\n" if unfinished else "") + "".join(f"{line}\n" for line in lines))


def _last(node: yaml.Node) -> yaml.Node:
    """The scalar or `{...}` that a node ends with: only those end where they seem to."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        key, node = last if isinstance(last, tuple) else (last, last)
        if node.start_mark.index == node.end_mark.index:
            return cast("yaml.Node", key)
    return node
