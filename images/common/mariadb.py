"""Option files of MariaDB's programs."""

from __future__ import annotations


def quoted(value: str) -> str:
    """A value in an option file, whatever characters it has."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
