"""Write registry and digests into a stack file, and leave everything else in it as it is.

Only the lines of these two keys are replaced. The result is read again and compared with what was wanted before the
file is written: one that is laid out in another way stays as it is, and the lines to add are shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cli.errors import Failure
from cli.images.names import ImageNames
from config.load import PROJECT, plain
from local.files import write_whole

KEY = f"{PROJECT}:images"

_SECTION = re.compile(rf"^(?P<indent> +){KEY}:(?P<beside>.*)\n(?P<below>(?:(?:(?P=indent) +.*)?\n)*)", re.MULTILINE)
"""The section's key, what stands beside it, and its lines."""


def snippet(names: ImageNames, digests: Mapping[str, str]) -> str:
    """The section as a stack file has it, below `config:`."""
    return _lines({KEY: {"registry": names.registry, "digests": dict(digests)}}, "  ")


def pin(file: Path, names: ImageNames, digests: Mapping[str, str]) -> None:
    """Write registry and digests into a stack file, at once or not at all. Raises Failure if that cannot be done."""
    target = file.resolve()
    text = target.read_text(encoding="utf-8")
    wanted = yaml.safe_load(text)
    section = plain(wanted["config"].get(KEY) or {}) | {"registry": names.registry, "digests": dict(digests)}
    wanted["config"][KEY] = section
    edited = _edited(text if text.endswith("\n") else f"{text}\n", section)
    try:
        fits = yaml.safe_load(edited) == wanted
    except yaml.YAMLError:
        fits = False
    if not fits:
        raise Failure(
            f"{file} is written in a way that cannot be edited without loss",
            hint=f"put this below `config:` in it, in place of what it has of {KEY}:\n{snippet(names, digests)}",
        )
    write_whole(target, edited, mode=target.stat().st_mode & 0o777)


def _edited(text: str, section: Mapping[str, Any]) -> str:
    """The text with this section; it may fit nowhere."""
    found = _SECTION.search(text)
    if found is None:
        return re.sub(
            r"^config:.*\n", lambda config: config[0] + _lines({KEY: section}, "  "), text, flags=re.MULTILINE
        )
    below, indent = found["below"], found["indent"]
    if first := re.match(" +", below):
        beside, inner = found["beside"], first[0]
        for key in ("registry", "digests"):
            below = re.sub(rf"^{inner}{key}:.*\n(?:{inner} +.*\n)*", "", below, flags=re.MULTILINE)
        new = {key: section[key] for key in ("registry", "digests")}
    else:  # {...} or nothing beside the key; a comment there stays
        beside, inner, new = "".join(re.findall(" #.*", found["beside"])), f"{indent}  ", dict(section)
    return text.replace(found[0], f"{indent}{KEY}:{beside}\n{_lines(new, inner)}{below}", 1)


def _lines(values: Mapping[str, Any], indent: str) -> str:
    dumped = yaml.safe_dump(dict(values), default_flow_style=False, width=1000, sort_keys=False)
    return "".join(f"{indent}{line}" for line in dumped.splitlines(keepends=True))
