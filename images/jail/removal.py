"""Taking roots away in which users have written, whatever they have made there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from images.common import jail_roots
from images.common.process import CannotGoOnError, RefusedError
from images.jail.accounts import FIRST_ID, LAST_ID, AccountError, is_name
from images.jail.users import numbers_of
from images.jail.walk import DEEPEST, INTO

_AT_ONCE: Final = 10_000
"""Names of a directory that are held."""

_REMOVING: Final = ".removing-"
"""In ROOTS: what is left of roots that are being removed. No root can be called so."""


def empty_root(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Empty a root in which nobody has been yet. The directory stays the same: pods may wait with it mounted."""
    (jail_roots.directory_of(volume, name) / jail_roots.MANIFEST).unlink(missing_ok=True)
    _empty(jail_roots.root_of(volume, name), log)


def remove(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Remove a root for good. One that was interrupted is gone on with. Raises CannotGoOnError."""
    if not jail_roots.is_name(name):
        raise RefusedError(f"{name!r} is no name of a root")
    roots = volume / jail_roots.ROOTS
    there = jail_roots.directory_of(volume, name)
    if there.is_dir() and not there.is_symlink():
        _keep_numbers(volume, name, log)
        # Out of everybody's reach at once: whoever could still come by its name would go on writing in it.
        there.rename(roots / f"{_REMOVING}{name}.{time.time_ns()}")
    elif not _left(roots):
        raise RefusedError(f"there is no root {name!r}")
    for trash in _left(roots):
        _empty(trash, log)
        trash.rmdir()
    log(f"the root {name!r} is removed")


def _left(roots: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(entry for entry in roots.iterdir() if entry.name.startswith(_REMOVING))
    return []


def _keep_numbers(volume: Path, name: str, log: Callable[[str], None]) -> None:
    """Homes of those who had an account in it stay, with their numbers."""
    try:
        numbers = numbers_of(jail_roots.root_of(volume, name))
    except (CannotGoOnError, AccountError, OSError) as error:
        log(f"its accounts cannot be read, so numbers that only it knew may be given again: {error}")
        return
    kept = {
        kind: {
            number: name if is_name(name) else "?" for number, name in found.items() if FIRST_ID <= number <= LAST_ID
        }
        for kind, found in numbers.items()
    }
    jail_roots.keep_numbers(volume, **kept)


def _empty(trash: Path, log: Callable[[str], None]) -> None:
    """All in a directory goes, by open directories. What is too deep for that is moved to its top first."""
    top = os.open(trash, INTO)
    gone, deep = [0], [0]
    try:
        _clear(top, top, 0, (gone, deep), log)
    except OSError as error:
        raise CannotGoOnError(f"not all could be removed ({error.strerror}); the same command goes on") from error
    finally:
        os.close(top)


def _clear(
    directory: int, top: int, depth: int, counts: tuple[list[int], list[int]], log: Callable[[str], None]
) -> None:
    gone, deep = counts
    while True:
        with os.scandir(directory) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _AT_ONCE)]
        if not found:
            return
        for name, is_directory in found:
            if not is_directory:
                os.unlink(name, dir_fd=directory)
            elif depth >= DEEPEST:
                deep[0] += 1
                os.rename(name, f"deep-{deep[0]}-{time.time_ns()}", src_dir_fd=directory, dst_dir_fd=top)
                continue
            else:
                inner = os.open(name, INTO, dir_fd=directory)
                try:
                    _clear(inner, top, depth + 1, counts, log)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=directory)
            gone[0] += 1
            if gone[0] % 100_000 == 0:
                log(f"{gone[0]} files and directories are removed so far")
