"""What the server of the database and its clients have in common: option files, and the password."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PASSWORD: Final = Path("/secrets/database/password")


def read_password() -> str:
    """The database password, without the line break that an editor leaves at its end."""
    return PASSWORD.read_text(encoding="utf-8").rstrip("\n")


def quoted(value: str) -> str:
    """A value in an option file, whatever characters it has."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
