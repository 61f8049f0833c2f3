"""slurmctld as the supervisor's child: kept up, ended, and judged by its answers."""

from __future__ import annotations

from images.common.wait import Clock
from images.controller.daemon import UNANSWERED, Daemon, Trouble


def quiet(_: str) -> None:
    """A log that nobody reads."""


def test_one_that_waits_for_a_munged_that_is_away_is_in_trouble() -> None:
    daemon = Daemon(("/bin/sleep", "987"), quiet, Clock())
    for _ in range(UNANSWERED):
        assert daemon.trouble is None
        daemon.note(answered=False, munged=False)
    assert daemon.trouble is Trouble.MUNGE
    daemon.note(answered=False)
    assert daemon.trouble is None
