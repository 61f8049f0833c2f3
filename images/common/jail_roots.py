"""Root file systems in the jail's volume.

The first one is the volume itself. Others are below ROOTS, each in a directory of its own with what we know of it
beside it, where nobody who is in a root comes: pods mount `NAME/root` alone, and those of the first root have something
mounted over ROOTS (`hidden`), so that not even root in it reads or moves what is there.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from images.common.files import read_document, write_atomically
from images.common.jail_view import Bind, open_inside
from images.common.process import RefusedError
from images.common.readiness import JAIL_MARKER

ROOTS: Final = ".slurmstack-roots"
SHARED: Final = ("home", "srv")
"""At the volume's top, for all roots."""

_FIRST: Final = ".first"
"""In ROOTS: what we know of the first root. No root can be called so."""

_FILLED: Final = "filled.json"
NUMBERS: Final = ".numbers.json"
MANIFEST: Final = "manifest"
HOMES_MARK: Final = ".homes"
"""In ROOTS: there where homes are on a volume of their own. Of this volume alone: no backup has it."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?")
_RELEASE: Final = re.compile(r"(\d\d\.\d\d)-")
_MOST_NUMBERS: Final = 64 * 2**20

NOTHING: Final = Path("/run/slurmstack/nothing")


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What is known of a root that is whole."""

    version: str
    """Tag of the image that it was filled from."""
    release: str
    """Of Slurm in it; empty where nobody said so."""
    time: str
    carried_from: str | None = None
    """None: nothing was carried; empty: from the first root."""
    left_out: int = 0
    """Files that could not be carried."""
    ended_early: str = ""
    """The path at which the time for carrying was over: nobody has counted what came after. Empty: it was not."""


def is_name(name: str) -> bool:
    """Whether a root can be called so; it is safe as the name of a directory."""
    return bool(_NAME.fullmatch(name))


def directory_of(volume: Path, name: str) -> Path:
    """Where a root and what we know of it are. An empty name: the first one's."""
    return volume / ROOTS / (name or _FIRST)


def root_of(volume: Path, name: str) -> Path:
    """The root itself."""
    return directory_of(volume, name) / "root" if name else volume


def make_directory_of(volume: Path, name: str) -> Path:
    """Make it, for root alone, where it is missing. Kubelet may have made it as it makes any directory of a mount."""
    made = directory_of(volume, name)
    # Before there were named roots, nothing kept root in the first one from putting a link there.
    os.close(open_inside(volume, str(made.relative_to(volume)), make=True, kind="directory"))
    for path in (made.parent, made):
        path.chmod(0o700)
    return made


def names(volume: Path) -> list[str]:
    """The named roots that there are, whole or not."""
    try:
        found = sorted(entry.name for entry in (volume / ROOTS).iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    return [name for name in found if is_name(name)]


def filled(volume: Path, name: str) -> Filled | None:
    """What is known of a root; None if it is not whole."""
    known = read_document(directory_of(volume, name) / _FILLED)
    if known is None and not name:
        # Filled before there were others; whoever is root in it may write there.
        known = read_document(volume / JAIL_MARKER)
    return None if known is None else _parsed(known)


def write_filled(volume: Path, name: str, known: Filled) -> None:
    """Say that a root is whole."""
    path = directory_of(volume, name) / _FILLED
    write_atomically(path, json.dumps(asdict(known)) + "\n", mode=0o600)


def whole(volume: Path) -> list[str]:
    """All roots that are whole; an empty name stands for the first one."""
    return [name for name in ("", *names(volume)) if filled(volume, name) is not None]


def called(name: str) -> str:
    """A root in a message."""
    return f"the root {name!r}" if name else "the first root"


def release_of(version: str) -> str:
    """The release of Slurm in a tag that we computed, else nothing."""
    found = _RELEASE.match(version)
    return found[1] if found else ""


def hidden() -> tuple[Bind, ...]:
    """An empty directory over ROOTS in the first root. What is mounted on cannot be moved or removed either."""
    if os.environ.get("JAIL_ROOT"):
        return ()
    NOTHING.mkdir(mode=0o755, parents=True, exist_ok=True)
    return (Bind(path=f"/{ROOTS}", source=str(NOTHING), read_only=True, make=True),)


def note_homes(volume: Path, *, apart: bool) -> None:
    """Write down where homes are, before any root is whole; from then on that stays."""
    if whole(volume):
        return
    if apart:
        make_directory_of(volume, "")
        write_atomically(volume / ROOTS / HOMES_MARK, "", mode=0o600)
    else:
        (volume / ROOTS / HOMES_MARK).unlink(missing_ok=True)


def refuse_other_homes(volume: Path, *, apart: bool) -> None:
    """Raise RefusedError where homes are not where the stack file has them: users would see an empty /home."""
    if whole(volume) and apart != (volume / ROOTS / HOMES_MARK).exists():
        has, wants = "in the jail's own volume", "on a volume of their own"
        raise RefusedError(
            f"jail.homes: the homes of this cluster are {has if apart else wants}, and the stack file has them "
            f"{wants if apart else has}, which is empty. Set it back; docs/jail.md says how homes are moved"
        )


def kept_numbers(volume: Path, kind: str) -> dict[int, str]:
    """Numbers of `users` or `groups` in roots that were removed, with their names."""
    known = (read_document(volume / ROOTS / NUMBERS, most=_MOST_NUMBERS) or {}).get(kind)
    if not isinstance(known, dict):
        return {}
    return {int(number): str(name) for number, name in known.items() if number.isdecimal() and len(number) < 10}


def keep_numbers(volume: Path, **numbers: dict[int, str]) -> None:
    """Add to them, before a root goes in which users and groups had these."""
    kept = {kind: {**found, **kept_numbers(volume, kind)} for kind, found in numbers.items()}
    document = {kind: {str(number): name for number, name in sorted(found.items())} for kind, found in kept.items()}
    write_atomically(volume / ROOTS / NUMBERS, json.dumps(document) + "\n", mode=0o600)


def _parsed(known: dict[str, Any]) -> Filled:
    """Whoever is root in the first root may have written it."""
    text = {
        key: "".join(c for c in value[:200] if c.isprintable())
        for key, value in known.items()
        if isinstance(value, str)
    }
    version, left_out = text.get("version") or "unknown", known.get("left_out")
    return Filled(
        version=version,
        release=text.get("release") or release_of(version),
        time=text.get("time", ""),
        carried_from=text.get("carried_from"),
        left_out=left_out if isinstance(left_out, int) else 0,
        ended_early=text.get("ended_early", ""),
    )
