"""Slurm's state on its volume: saves that were cut short, and where the state of two controllers lies.

With two controllers it lies in a directory with the number of an epoch (images/controller/epochs.py), as `term-7`, of
which the highest counts. With one it lies at the top of the volume. What is there becomes the first epoch, and goes
back: the queue stays when a standby comes or goes, and so does what a backup has of it.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import Final

VOLUME: Final = Path("/var/lib/slurmstack/state")
"""Where the pods of two controllers mount the state volume (components/controller.py)."""

ALONE_LOCK: Final = Path("/run/slurmstack/alone")

_NAME: Final = re.compile(r"term-([1-9]\d*)")
_MOVING: Final = "moving"
"""The directory of two controllers while what is in it comes, or goes: whichever was cut short, either goes on."""


def _is_file(path: Path) -> bool:
    """What else is called so is none of slurmctld's: a directory that somebody has put aside."""
    return path.is_file() and not path.is_symlink()


def whole(regular: Path) -> Path:
    """The file that `finish_saves` would give that name: another one only where there is none of that name."""
    new, old = (regular.with_name(f"{regular.name}{ending}") for ending in (".new", ".old"))
    if os.path.lexists(regular) or not _is_file(old):
        return regular
    return new if _is_file(new) else old  # the name went away when the new one was whole


def finish_saves(state: Path) -> list[str]:
    """Bring to an end the saves of a slurmctld that was killed in the midst of them. Nobody may write there meanwhile.

    It writes NAME.new, whole and on the disk, links NAME to NAME.old, takes NAME away, and links NAME.new to NAME
    (`save_buf_to_state` in Slurm). Killed in between it leaves no NAME: 24.11 then reads NAME.old, which is one save
    older, and 26.05 nothing at all: it ends, or with `-i` begins with an empty queue and deletes the scripts of all
    jobs. Returns the names of the files that are there again.
    """
    found = []
    for name in sorted({path.stem for path in [*state.glob("*.new"), *state.glob("*.old")] if _is_file(path)}):
        regular, new = state / name, state / f"{name}.new"
        source = whole(regular)
        if source == new:
            new.rename(regular)
        elif source != regular:
            os.link(source, regular)
        if source != regular:
            found.append(name)
        if _is_file(new):
            new.unlink()
    return found


def number_of(directory: Path) -> int:
    """The term of a directory; 0 where it is none's."""
    found = _NAME.fullmatch(directory.name)
    return int(found[1]) if found else 0


def current(volume: Path) -> Path | None:
    """The directory that counts; None where there is none of two controllers."""
    terms = [path for path in volume.iterdir() if number_of(path)]
    return max(terms, key=number_of, default=None)


def adopt(volume: Path) -> Path:
    """All that one controller has left, in a directory."""
    directory = volume / _MOVING
    directory.mkdir(mode=0o755, exist_ok=True)
    for path in list(volume.iterdir()):
        if path.name not in {_MOVING, "lost+found"} and not number_of(path):
            path.rename(directory / path.name)
    return directory


def return_to_one(volume: Path) -> None:
    """Lay the state where slurmctld looks for it. No other program may do so at the same time; it may go on."""
    directory, last = volume / _MOVING, current(volume)
    if last is not None and not directory.exists():
        last.rename(directory)  # a controller that was forgotten somewhere writes nothing from now on
    if directory.exists():
        for path in list(directory.iterdir()):
            path.rename(volume / path.name)
        directory.rmdir()


def return_to_one_of_pod(volume: Path) -> None:
    """The same for the programs of a pod, each of which begins with it."""
    ALONE_LOCK.parent.mkdir(parents=True, exist_ok=True)
    with ALONE_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return_to_one(volume)
