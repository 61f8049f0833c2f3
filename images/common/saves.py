"""What a slurmctld that was killed in the midst of a save has left.

It writes NAME.new, whole and on the disk, links NAME to NAME.old, takes NAME away, and links NAME.new to NAME
(`save_buf_to_state` in Slurm). Killed in between it leaves no NAME: 24.11 then reads NAME.old, which is one save older,
and 26.05 nothing at all: it ends, or with `-i` begins with an empty queue and deletes the scripts of all jobs.
"""

from __future__ import annotations

import os
from pathlib import Path


def _is_file(path: Path) -> bool:
    """What else is called so is none of slurmctld's: a directory that somebody has put aside."""
    return path.is_file() and not path.is_symlink()


def whole(regular: Path) -> Path:
    """The file that `finish` would give that name: another one only where there is none of that name."""
    new, old = (regular.with_name(f"{regular.name}{ending}") for ending in (".new", ".old"))
    if os.path.lexists(regular) or not _is_file(old):
        return regular
    return new if _is_file(new) else old  # the name went away when the new one was whole


def finish(state: Path) -> list[str]:
    """Bring those saves to their end, and forget what is not whole. Nobody may write there meanwhile.

    Returns the names of the files that are there again.
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
