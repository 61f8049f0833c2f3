"""A stack file while it is checked: what could be read, and what was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from config.cluster import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class Sections:
    """`valid` has the sections that could be read, `written` all of them as written."""

    valid: Mapping[str, Any]
    written: Mapping[str, Any]
    now: datetime
    """What reservations are compared with; with a time zone."""

    def get(self, name: str) -> Any:
        """A section, or its default where none is written. One that is wrong itself has no default: None.

        Of a section of named things, those that are right by themselves.
        """
        field = ClusterConfig.model_fields[name]
        if name in self.valid:
            return self.valid[name]
        if name not in self.written and not field.is_required():
            return field.get_default(call_default_factory=True)
        return {} if str(field.annotation).startswith("dict[") else None

    def names(self, name: str) -> list[str]:
        """All names in a section of named things, also of those that are wrong otherwise."""
        section = self.written.get(name)
        return [str(key) for key in section] if isinstance(section, Mapping) else []
