"""slurmctld's state: a copy that it can start from, taken while it writes, and putting one back.

slurmctld writes each file as NAME.new, then removes NAME.old, links NAME to NAME.old, removes NAME and links NAME.new
to NAME: what is open stays whole, and for a moment there is no NAME. Scripts of jobs (hash.N/job.ID) are written before
job_state names them and go some minutes after the job has ended, so they are read after it: those without a job in
job_state slurmctld removes at its start.
"""

from __future__ import annotations

import re
import shutil
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from images.common import terms
from images.common.process import CannotGoOnError, RefusedError

JOBS: Final = "job_state"
SCRIPTS: Final = re.compile(r"hash\.\d+")

_ACCOUNTING: Final = "slurmstack/accounting"
"""images/controller/slurmctld.py: without it slurmctld takes the cluster's id from slurmdbd."""

_ARRIVING: Final = "restoring"
_LEFT_ALONE: Final = frozenset({"slurmstack", "lost+found", _ARRIVING})
"""The first is the configuration agent's own directory, which it writes from the stack file."""

_TRIES: Final = 40
_PAUSE: Final = 0.05

_HEADER: Final = struct.pack(">I", 17) + b"PROTOCOL_VERSION\0"
_HEAD: Final = struct.Struct(">HQI")
"""What follows: the protocol of a release of Slurm, the time of the file, and the id of the next job
(`dump_all_job_state` in Slurm)."""

_PROTOCOL_OF_24_05: Final = 41
"""In its upper byte. Each release, two a year, has one more."""


def take(state: Path, target: Path) -> list[str]:
    """Copy all files at the top of the state directory, each whole; returns what is there. Raises CannotGoOnError."""
    target.mkdir(mode=0o700, exist_ok=True)
    names = {re.sub(r"\.(old|new)$", "", path.name) for path in state.iterdir() if path.is_file()}
    return [name for name in sorted(names) if _copy(state / name, target / name)]


def _copy(regular: Path, target: Path) -> bool:
    """Whether it was there. A name that stays away is one of a slurmctld that was killed in the midst of a save."""
    for attempt in range(_TRIES):
        with suppress(FileNotFoundError):
            shutil.copy2(regular if attempt < _TRIES - 1 else terms.whole(regular), target)
            return True
        time.sleep(_PAUSE)
    if regular.name == JOBS:
        raise CannotGoOnError(f"{regular} is not there; only an unfinished version of it is")
    return False


def _head(jobs: Path) -> tuple[int, int]:
    """Protocol of the Slurm that has written a job_state, and the id that the next job gets by it.

    Zeros where there is none, or nothing in it. Raises RefusedError.
    """
    if not jobs.is_file() or not jobs.stat().st_size:
        return 0, 0
    start = jobs.read_bytes()[:64]
    if not start.startswith(_HEADER) or len(start) < len(_HEADER) + _HEAD.size:
        raise RefusedError(f"{jobs} does not begin as a job_state of Slurm 24.11 or 26.05 does")
    protocol, _, following = _HEAD.unpack_from(start, len(_HEADER))
    return int(protocol), int(following)


def refuse_unreadable(jobs: Path, backup: str, release: str) -> None:
    """Raise RefusedError where slurmctld would not read a backup's job_state. `release`: as `slurmctld -V` has it."""
    protocol, following = _head(jobs)
    if not (found := re.search(r"(\d+)\.(\d+)", release)):
        raise CannotGoOnError(f"slurmctld of this image does not say its release: {release!r}")
    year, month = int(found[1]), int(found[2])
    if not following:  # ids could not go on above it
        raise RefusedError(f"the state in {backup} has no queue: slurmctld had saved none yet; nothing was touched")
    if protocol >> 8 > _PROTOCOL_OF_24_05 + 2 * (year - 24) + (month > 5):
        raise RefusedError(f"the state in {backup} is of a newer Slurm than the one here; nothing was touched")


def put_back(
    state: Path, fetch: Callable[[Path], None], *, backup: str, highest: int, log: Callable[[str], None]
) -> None:
    """Replace the state by what `fetch` writes into a directory. slurmctld is away.

    `highest`: the highest job id that accounting knows; the next job gets a higher one, and one that no version of the
    queue here has given out. The queue comes first: the next try after an interruption finds in it how far ids had
    come. What is damaged here is replaced as well.
    """
    least = highest + 1 if highest else 0
    for ending in ("", ".new", ".old"):
        try:
            least = max(least, _head(state / f"{JOBS}{ending}")[1])
        except RefusedError as error:
            log(f"ids that only this one knows may be given again: {error}")
    terms.finish_saves(state)
    arriving = state / _ARRIVING
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(mode=0o700)
    fetch(arriving)
    following = max(least, _head(arriving / JOBS)[1])
    with (arriving / JOBS).open("r+b") as file:
        file.seek(len(_HEADER) + _HEAD.size - 4)
        file.write(struct.pack(">I", following))
    (arriving / JOBS).replace(state / JOBS)
    for path in [path for path in state.iterdir() if path.name not in {*_LEFT_ALONE, JOBS}]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in list(arriving.iterdir()):
        path.rename(state / path.name)
    arriving.rmdir()
    take_id_of_slurmdbd(state)
    log(f"slurmctld's state is that of {backup}; the next job gets the id {following}, or a higher one")


def take_id_of_slurmdbd(state: Path) -> None:
    """Have slurmctld take the cluster's id from slurmdbd at its next start, whose records may have another one."""
    (state / _ACCOUNTING).unlink(missing_ok=True)
