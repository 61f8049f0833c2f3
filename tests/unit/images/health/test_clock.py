"""The clock: who keeps it, and how far it is from what all nodes have in common."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.health.checks import clock
from images.health.checks.clock import Kept
from images.health.contract import Node, Result, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.places import make_node

GOOD = Kept(synchronised=True, error_seconds=0.02)


def check(
    node: Node, *, kept: Kept | Exception = GOOD, ahead: float = 0.0, jump: float = 0.0, **thresholds: float
) -> Result:
    """Run it on a machine whose clock is ahead by so many seconds, and jumps in between."""

    def kernel() -> Kept:
        if isinstance(kept, Exception):
            raise kept
        return kept

    jumps: Iterator[float] = iter([0.0, jump])
    return clock.run(
        node,
        FakeRunner(),
        Thresholds({"clock": thresholds}),
        kernel=kernel,
        clock=lambda: time.time() + ahead + next(jumps),
    )


def test_a_kept_clock_that_agrees_with_the_file_system_is_well(tmp_path: Path) -> None:
    result = check(make_node(tmp_path))

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values == {"clock_synchronised": 1.0, "clock_error_seconds": 0.02, "clock_offset_seconds": 0.0}


def test_this_machines_kernel_is_understood() -> None:
    kept = clock.read_kernel()

    # The kernel calls a clock that it believes more than 16 s wrong not kept (NTP_PHASE_LIMIT).
    assert 0 <= kept.error_seconds <= 17


def test_a_clock_that_nobody_keeps_is_told(tmp_path: Path) -> None:
    result = check(make_node(tmp_path), kept=Kept(synchronised=False, error_seconds=16.0))

    assert (result.status, result.fault) == (Status.WARN, "node")
    assert result.message == "no time service keeps this machine's clock right"


def test_a_time_server_that_is_long_silent_is_told(tmp_path: Path) -> None:
    result = check(make_node(tmp_path), kept=Kept(synchronised=True, error_seconds=5.5))

    assert result.status is Status.WARN
    assert "may be 5.5 s off" in result.message


@pytest.mark.parametrize(
    ("ahead", "status", "side"),
    [
        (-1.0, Status.OK, ""),
        (1.0, Status.OK, ""),
        (-30.0, Status.WARN, "behind"),
        (30.0, Status.WARN, "ahead of"),
        (-90.0, Status.FAIL, "behind"),
        (90.0, Status.FAIL, "ahead of"),
    ],
)
def test_a_distance_is_told_and_then_a_fault(tmp_path: Path, ahead: float, status: Status, side: str) -> None:
    result = check(make_node(tmp_path), ahead=ahead)

    assert result.status is status
    assert result.fault == (None if status is Status.OK else "node")
    assert result.values["clock_offset_seconds"] == pytest.approx(ahead, abs=0.5)
    if side:
        assert f" s {side} the shared file system's, 60 s allowed" in result.message


def test_a_slow_file_system_is_not_a_wrong_clock(tmp_path: Path) -> None:
    """The stamp is made somewhere between two looks at the clock."""
    assert check(make_node(tmp_path), ahead=-45.0, jump=90.0).values["clock_offset_seconds"] == 0.0


def test_a_clock_that_is_set_back_meanwhile_is_not_checked(tmp_path: Path) -> None:
    assert check(make_node(tmp_path), jump=-100.0).status is Status.NOT_CHECKED


def test_a_site_sets_its_own_limits(tmp_path: Path) -> None:
    assert check(make_node(tmp_path), ahead=30.0, fail_seconds=10).status is Status.FAIL


def test_a_kernel_that_does_not_tell_is_not_checked(tmp_path: Path) -> None:
    denied = OSError(errno.EPERM, "Operation not permitted")

    result = check(make_node(tmp_path), kept=denied)

    assert result.status is Status.NOT_CHECKED
    assert "Operation not permitted" in result.message


def test_an_unknown_kernel_does_not_hide_a_wrong_clock(tmp_path: Path) -> None:
    assert check(make_node(tmp_path), kept=ValueError("?"), ahead=90.0).status is Status.FAIL


class FakeLibc:
    """A C library whose adjtimex answers something."""

    def __init__(self, answer: Callable[..., int]) -> None:
        self.adjtimex = answer


STA_PLL, STA_UNSYNC = 0x0001, 0x0040


@pytest.mark.parametrize(("status", "synchronised"), [(STA_PLL, True), (STA_PLL | STA_UNSYNC, False)])
def test_the_kernels_answer_is_read(monkeypatch: pytest.MonkeyPatch, status: int, synchronised: bool) -> None:
    """At the offsets of struct timex on 64-bit Linux: maxerror 24, status 40, time 72."""

    def answer(timex: ctypes.Array[ctypes.c_long]) -> int:
        struct.pack_into("q", timex, 24, 31_500)
        struct.pack_into("i", timex, 40, status)
        struct.pack_into("q", timex, 72, int(time.time()))
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: FakeLibc(answer))

    assert clock.read_kernel() == Kept(synchronised=synchronised, error_seconds=0.0315)


def test_an_answer_in_another_layout_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: FakeLibc(lambda _timex: 0))

    result = clock.run(make_node(tmp_path), FakeRunner(), Thresholds())

    assert result.status is Status.NOT_CHECKED
    assert "not as expected" in result.message


def test_a_forbidden_call_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_timex: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: FakeLibc(refuse))

    result = clock.run(make_node(tmp_path), FakeRunner(), Thresholds())

    assert result.status is Status.NOT_CHECKED
    assert "Operation not permitted" in result.message


def test_a_jail_that_cannot_be_asked_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    node = make_node(tmp_path)
    monkeypatch.setattr(os, "utime", refuse)

    result = check(node)

    assert (result.status, result.fault) == (Status.NOT_CHECKED, None)
    assert "Input/output error" in result.message


def test_an_empty_mount_point_is_not_checked(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    assert check(make_node(tmp_path, jail=empty)).status is Status.NOT_CHECKED


def test_a_pool_without_a_jail_asks_the_kernel_alone(tmp_path: Path) -> None:
    assert check(make_node(tmp_path, jail=None), ahead=1000.0).status is Status.OK
