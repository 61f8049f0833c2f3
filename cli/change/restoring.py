"""What a restore that is under way has noted at slurmctld's StatefulSet, for whoever comes after it was cut short."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

RESTORING = "slurmstack/restoring"
"""Annotation: a `Note` as JSON."""

Step = Literal["stopping", "putting", "starting"]
"""This one has put nothing back yet; it may have, by half; all is put back, and what was stopped is started."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """Which restore, and how far it has come."""

    step: Step
    parts: tuple[str, ...]
    backup: str
    half: tuple[str, ...] = ()
    """Parts that it, or one before it that it goes on with, may have put back by half."""
    leave_stopped: bool = False
    left: str = ""
    """The backup of the state that an earlier restore has left for an apply to start, of one of the jail alone."""

    def written(self) -> str:
        """For the annotation."""
        return json.dumps(asdict(self))

    @property
    def command(self) -> str:
        """What goes on with it."""
        parts = "".join(f" --what {part}" for part in self.parts)
        return f"slurmstack restore{parts} --at {self.backup}{' --leave-stopped' if self.leave_stopped else ''}"


def note_of(objects: Iterable[Mapping[str, Any]]) -> Note | None:
    """What is noted; None where there is nothing, or what nobody understands."""
    for item in objects:
        try:
            said = json.loads((item["metadata"].get("annotations") or {})[RESTORING])
            note = Note(**{**said, **{key: tuple(map(str, said[key])) for key in ("parts", "half")}})
        except (KeyError, TypeError, ValueError):
            continue
        if note.step in get_args(Step):
            return note
    return None
