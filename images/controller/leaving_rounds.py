"""Takes a partition that has left the stack out of slurm.conf when its last job has gone.

A partition is closed before the queue is looked at, even if the queue looks empty: no job can come in between, also
none that names several partitions, since Slurm takes the closed one from its list.

The queue does not tell everything. A job that was submitted with several partitions shows the one in which it runs,
but slurmctld 24.11 ends it when it no longer finds one of the others (measured; 26.05 does not). The whole list is only
in slurmctld's own job_state, for as long as slurmctld remembers the job (`MinJobAge`).
"""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from images.common.wait import Clock
from images.controller.configuration import STATE, Files
from images.controller.control import Slurmctld
from images.controller.leaving import leaving_partitions

POLL_SECONDS: Final = 10.0
"""Between two looks at the queue, while a partition is kept."""

LOOKS: Final = 3
LOOK_AGAIN_SECONDS: Final = 0.1
"""slurmctld puts a new file in the place of the old one, and for a moment there is none. Before the first job, too."""


def count_jobs(queue: str) -> Counter[str]:
    """Jobs by partition; one that names several partitions counts for each. `queue`: the partitions, a job a line."""
    return Counter(name for line in queue.splitlines() for name in set(line.strip().split(",")))


_TEXT: Final = re.compile(rb"(?<![\w,-])[\w,-]++(?=\0)")
"""What may be a list of partitions in slurmctld's file. Each character is looked at once: users decide what else is in
there (arguments, comments), and how much of it."""


def in_a_list(job_state: bytes | mmap.mmap, partition: str) -> bool:
    """Whether a job in slurmctld's file names this partition and others.

    Rather too often than not: other lists of words, such as features, look the same. The byte before a text is part of
    its length, and may look like a part of the text.
    """
    name = partition.encode()
    for found in _TEXT.finditer(job_state):
        words = [word for word in found[0].split(b",") if word]
        if len(words) > 1 and (name in words or words[0][1:] == name):
            return True
    return False


class LeavingKeeper:
    """Looks at the queue while partitions are kept for their jobs."""

    def __init__(
        self,
        *,
        slurmctld: Slurmctld,
        published: Callable[[], Files],
        drop: Callable[[Collection[str]], bool],
        log: Callable[[str], None],
        state: Path = STATE,
        clock: Clock | None = None,
    ) -> None:
        """`drop` makes slurmctld read its files without these partitions."""
        self._slurmctld = slurmctld
        self._published = published
        self._drop = drop
        self._log = log
        self._job_state = state / "job_state"
        self._clock = clock or Clock()
        self._next = 0.0
        self._told: frozenset[str] = frozenset()
        self._named: frozenset[str] = frozenset()

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`, but at once when a partition has just left."""
        kept = frozenset(leaving_partitions(self._published()))
        new = kept - self._told
        self._told &= kept
        now = self._clock.now()
        if not kept or (now < self._next and not new):
            return
        queue = self._slurmctld.queue_text()
        if queue is None:
            return
        self._next = now + POLL_SECONDS
        jobs = count_jobs(queue)
        for name in sorted(new):
            self._log(f"partition {name} has left the stack: closed for new jobs, kept while it has any ({jobs[name]})")
        self._told = kept
        empty = sorted(name for name in kept if not jobs[name])
        named = frozenset(name for name in empty if self._named_elsewhere(name))
        for name in sorted(named - self._named):
            self._log(
                f"partition {name} has no job in the queue, and is kept: slurmctld's job_state has it in a list of "
                "words (a job that was submitted with several partitions, or a comment or features that look like it)"
            )
        self._named = named
        gone = [name for name in empty if name not in named]
        if gone and self._drop(gone):
            self._log(f"no job is left of {', '.join(gone)}: taken out of slurm.conf")

    def _named_elsewhere(self, partition: str) -> bool:
        """Whether a job that runs in another partition names this one, too. The file may be large: it is not read."""
        for _ in range(LOOKS):
            try:
                with (
                    self._job_state.open("rb") as file,
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
                ):
                    return in_a_list(content, partition)
            except ValueError:  # nothing can be mapped of an empty file, in which no job is
                return False
            except FileNotFoundError:
                self._clock.sleep(LOOK_AGAIN_SECONDS)
        return False
