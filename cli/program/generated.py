"""Random values that are made once and kept, where no Pulumi state keeps them."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
from pathlib import Path

from cli.errors import Failure
from cli.program.recording import GeneratedValues
from local.files import write_whole


class KeptValues(GeneratedValues):
    """Values by resource name. Those that are missing are made; `changed` tells whether any were."""

    def __init__(self, values: dict[str, str], text: str | None = None) -> None:
        """`text`: the file that they come from, as it was read."""
        self.values = values
        self.changed = False
        self.damaged: list[str] = []
        """Names of kept values that had not the right length; others were made in their place."""
        self.text = text

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
        if path.exists() and not path.is_file():  # a device may never end
            raise _unreadable(path, "it is no plain file")
        text = path.read_text(encoding="utf-8")
        values = json.loads(text)
        for value in values.values():
            base64.b64decode(value, validate=True)
    except FileNotFoundError:
        return KeptValues({})
    except (AttributeError, TypeError):
        raise _unreadable(path, "it is no table of keys") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    return KeptValues(values, text)


def _unreadable(path: Path, why: str) -> Failure:
    return Failure(
        f"{path}, which keeps the generated keys, cannot be read: {why}",
        hint="restore it from a backup; without it new keys would be made, and running pods keep the old ones",
    )


def write_file(path: Path, kept: KeptValues) -> None:
    """Keep the values in a file that only its owner can read; it appears whole or not at all.

    Raises Failure, with nothing written, if a kept value was damaged, or if another run has written the file since it
    was read: its keys would be lost.
    """
    if kept.damaged:
        raise _unreadable(path, f"{', '.join(kept.damaged)} has not the length of such a key")
    if not kept.changed:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            if (path.read_text(encoding="utf-8") if path.exists() else None) != kept.text:
                raise Failure(f"another run has made keys in {path} meanwhile", hint="run this again: it takes those")
            write_whole(path, json.dumps(kept.values, indent=1))
        finally:
            os.close(directory)
    except OSError as error:
        raise Failure(f"cannot keep the generated keys in {path}: {error.strerror or error}") from error
