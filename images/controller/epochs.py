"""Which of two controllers may write the state: the one that has the volume's epoch.

    /var/lib/slurmstack/state/term-7/renewed     on the volume: "7 POD COUNT", written each second by who has epoch 7
    /var/spool/slurmctld -> .../term-7           in that pod, for Slurm and for our programs

Who could not write it for `LIMIT_SECONDS` kills its slurmctld. Who sees it unchanged for `MARGIN_SECONDS` longer
renames the directory to `term-8`, which is one step, and only one can do it. From then on a controller of epoch 7 finds
nothing at any path that it knows: whatever it still does, it writes nowhere. Of what it has open only unfinished files
could count later, so these go, or get their names, before slurmctld starts (terms.finish_saves).

No clock is compared with another machine's. The file is overwritten in place, since a full volume takes no new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common import terms

RENEW_SECONDS: Final = 1.0
LIMIT_SECONDS: Final = 5.0
MARGIN_SECONDS: Final = 2.0

RENEWED: Final = "renewed"
_RELEASED: Final = "released"
_LENGTH: Final = 128
"""Of the file, always: it is overwritten in place."""


def now() -> float:
    """Seconds on a clock that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _words(directory: Path) -> list[str]:
    """What its holder has written last: the epoch, the pod, a number."""
    try:
        return (directory / RENEWED).read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return []


class Epoch:
    """One that this pod has. The main thread asks `over`; all else may hang with the volume, and raises OSError."""

    def __init__(self, directory: Path, me: str, clock: Callable[[], float]) -> None:
        self.directory, self._me, self._clock = directory, me, clock
        self._count, self._is_lost = 0, False
        self.renew()

    def over(self) -> str | None:
        """Why slurmctld must not run, if so."""
        if self._is_lost:
            return "another controller has taken over"
        if self._clock() - self._renewed >= LIMIT_SECONDS:
            return f"the state volume has taken no renewal for {LIMIT_SECONDS:g} s"
        return None

    def renew(self) -> None:
        """Say that this one is there."""
        began = self._clock()
        self._count += 1
        try:
            self._write(f"{self._me} {self._count}")
        except FileNotFoundError:
            self._is_lost = True
        else:
            self._renewed = began

    def release(self) -> None:
        """Let another one take over at once; only when slurmctld has ended."""
        self._write(_RELEASED)

    def _write(self, words: str) -> None:
        """The epoch's number goes with it: what comes late, when the file is another epoch's, means nothing there."""
        text = f"{terms.number_of(self.directory)} {words}".ljust(_LENGTH - 1) + "\n"
        descriptor = os.open(self.directory / RENEWED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text.encode(), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Candidate:
    """One that has none. All of it may hang with the volume."""

    def __init__(self, volume: Path, me: str, *, is_first: bool, clock: Callable[[], float] = now) -> None:
        """`me`: one word, another one in each pod. `is_first`: whether it begins with what one controller has left."""
        self._volume, self._me, self._is_first, self._clock = volume, me, is_first, clock
        self._seen: tuple[str, list[str]] | None = None
        self._since = 0.0

    def look(self) -> Epoch | None:
        """Once a second: the epoch, once it is this one's. Raises OSError."""
        began = self._clock()
        directory = terms.current(self._volume)
        if directory is None:
            # While a standby is added the only controller still runs, without an epoch. Looked for twice: a directory
            # that is renamed in the same moment may be in no list.
            is_sure, self._seen = self._seen == ("", []), ("", [])
            return self._take(terms.adopt(self._volume)) if self._is_first and is_sure else None
        words, number = _words(directory), str(terms.number_of(directory))
        if words[:2] == [number, self._me]:  # of an earlier container of this pod
            return Epoch(directory, self._me, self._clock)
        if self._seen != (directory.name, words):
            self._seen, self._since = (directory.name, words), self._clock()
        if words[:2] == [number, _RELEASED] or began - self._since >= LIMIT_SECONDS + MARGIN_SECONDS:
            return self._take(directory)
        return None

    def _take(self, before: Path) -> Epoch | None:
        words = _words(before)
        known = int(words[0]) if words and words[0].isdecimal() else 0  # no number ever comes again
        after = self._volume / f"term-{max(terms.number_of(before), known) + 1}"
        try:
            before.rename(after)
        except FileNotFoundError:  # another one was faster
            return None
        return Epoch(after, self._me, self._clock)
