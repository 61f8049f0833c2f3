"""Takes a partition that has left the stack out of slurm.conf when its last job has gone.

A partition is closed before the queue is looked at, even if the queue looks empty: no job can come in between, also
none that names several partitions, since Slurm takes the closed one from its list.

The queue does not tell everything. A job that was submitted with several partitions shows the one in which it runs,
but slurmctld 24.11 ends it when it no longer finds one of the others (measured; 26.05 does not). So every job that ran
when the partition was closed keeps it, whatever the job names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from images.common.slurm_conf import leaving_partitions
from images.common.wait import Clock
from images.controller.configuration import Files
from images.controller.control import Slurmctld

POLL_SECONDS: Final = 10.0
"""Between two looks at the queue, while a partition is kept."""

_PENDING: Final = "PD"


class LeavingKeeper:
    """Looks at the queue while partitions are kept for their jobs."""

    def __init__(
        self,
        *,
        slurmctld: Slurmctld,
        published: Callable[[], Files],
        drop: Callable[[Collection[str]], bool],
        log: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """`drop` makes slurmctld read its files without these partitions."""
        self._slurmctld = slurmctld
        self._published = published
        self._drop = drop
        self._log = log
        self._clock = clock or Clock()
        self._next = 0.0
        self._before: dict[str, set[str]] = {}
        """Partition that is kept -> jobs that ran or named it when that was first seen. Another agent begins anew."""

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`, but at once when a partition has just left."""
        kept = sorted(leaving_partitions(self._published()))
        new = [name for name in kept if name not in self._before]
        self._before = {name: jobs for name, jobs in self._before.items() if name in kept}
        now = self._clock.now()
        if not kept or (now < self._next and not new):
            return
        text = self._slurmctld.queue_text()
        if text is None:
            return
        self._next = now + POLL_SECONDS
        queue = [line.split() for line in text.splitlines()]
        there = {job for job, *_ in queue}
        naming = {name: [job for job, _, names in queue if name in names.split(",")] for name in kept}
        for name in new:
            self._before[name] = {*naming[name], *(job for job, state, _ in queue if state != _PENDING)}
            self._log(
                f"partition {name} has left the stack: closed for new jobs, kept while it has any "
                f"({len(naming[name])}) and until all jobs have ended that run now, which may have named it as well"
            )
        self._before = {name: jobs & there for name, jobs in self._before.items()}
        gone = [name for name in kept if not naming[name] and not self._before[name]]
        if gone and self._drop(gone):
            self._log(f"no job is left of {', '.join(gone)}: taken out of slurm.conf")
