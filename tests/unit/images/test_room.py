"""A full volume is named once, again after a while, and when it has room again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.room import AGAIN, INTERVAL, Volume, judge

MEBIBYTE = 2**20
VOLUME = Volume(name="controller-state", path=Path("/state"), remedy="make it larger")
FULL = "the volume controller-state (/state) is full: {} MiB of {} MiB are free; make it larger"
ROOM = "the volume controller-state (/state) has room again"


def figures(free: int, size: int) -> os.statvfs_result:
    """Of a file system with blocks of a MiB."""
    return os.statvfs_result((MEBIBYTE, MEBIBYTE, size, free, free, 0, 0, 0, 0, 255))


@pytest.mark.parametrize(
    ("size", "free", "told"),
    [
        (1000, [500, 49, 40, 0], [None, FULL.format(49, 1000), None, None]),
        (1000, [0, 51, 0], [FULL.format(0, 1000), ROOM, FULL.format(0, 1000)]),
        (1_000_000, [1024, 1023], [None, FULL.format(1023, 1_000_000)]),
    ],
)
def test_what_is_said_of_a_volume(size: int, free: list[int], told: list[str | None]) -> None:
    looks, now = iter(free), iter(range(100))
    messages = judge(VOLUME, lambda: figures(next(looks), size), lambda: next(now) * INTERVAL)
    assert [next(messages) for _ in free] == told


def test_it_is_named_again_as_long_as_nobody_helps() -> None:
    times = iter([0.0, AGAIN - 1, AGAIN, AGAIN])
    messages = judge(VOLUME, lambda: figures(0, 10), lambda: next(times))
    assert [next(messages) is None for _ in range(3)] == [False, True, False]


def test_a_volume_that_cannot_be_looked_at_is_left_to_the_daemon() -> None:
    def broken() -> os.statvfs_result:
        raise OSError

    assert next(judge(VOLUME, broken, lambda: 0.0)) is None
