"""Random values that are made once and kept, where no Pulumi state keeps them."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

from cli.errors import Failure
from cli.program.recording import GeneratedValues
from local.files import write_whole


class KeptValues(GeneratedValues):
    """Values by resource name. Those that are missing are made; `changed` tells whether any were."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.changed = False
        self.damaged: list[str] = []
        """Names of kept values that had not the right length; others were made in their place."""

    def random_bytes(self, name: str, length: int) -> str:
        """The kept value of this resource, or a new one from the system's random source."""
        kept = self.values.get(name)
        if kept is None or len(base64.b64decode(kept)) != length:
            if kept is not None:
                self.damaged.append(name)
            kept = base64.b64encode(secrets.token_bytes(length)).decode()
            self.values[name] = kept
            self.changed = True
        return kept


def read_file(path: Path) -> KeptValues:
    """The values that `write_file` kept, none if there is no file yet. Raises Failure if they cannot be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        for value in values.values():
            base64.b64decode(value, validate=True)
    except FileNotFoundError:
        return KeptValues({})
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise _unreadable(path, str(error)) from error
    return KeptValues(values)


def _unreadable(path: Path, why: str) -> Failure:
    return Failure(
        f"{path}, which keeps the generated keys, cannot be read: {why}",
        hint="restore it from a backup; without it new keys would be made, and running pods keep the old ones",
    )


def write_file(path: Path, kept: KeptValues) -> None:
    """Keep the values in a file that only its owner can read; it appears whole or not at all.

    Raises Failure, with nothing written, if a kept value was damaged.
    """
    if kept.damaged:
        raise _unreadable(path, f"{', '.join(kept.damaged)} has not the length of such a key")
    if not kept.changed:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(kept.values, indent=1))
    except OSError as error:
        raise Failure(f"cannot keep the generated keys in {path}: {error.strerror or error}") from error
