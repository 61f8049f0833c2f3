"""The clock: who keeps it, and how far it is from what all nodes have in common."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.health.checks import clock
from images.health.checks.clock import Kept
from images.health.contract import Node, Result, Thresholds
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import make_node
from tests.unit.images.health.tables import Like, outcomes, words

GOOD = Kept(synchronised=True, error_seconds=0.02)
NOBODY = "warn [node]: no time service keeps this machine's clock right"
SILENT = "warn [node]: the clock may be 5.5 s off: no time server has answered for long"
DENIED = OSError(errno.EPERM, "Operation not permitted")


def check(
    node: Node, *, kept: Kept | Exception = GOOD, ahead: float = 0.0, jump: float = 0.0, **limits: float
) -> Result:
    """Run it on a machine whose clock is ahead by so many seconds, and jumps in between."""

    def kernel() -> Kept:
        if isinstance(kept, Exception):
            raise kept
        return kept

    jumps = iter([0.0, jump])
    now = lambda: time.time() + ahead + next(jumps)  # noqa: E731
    return clock.run(node, FakeRunner(), Thresholds({"clock": limits}), kernel=kernel, clock=now)


def off(side: str) -> str:
    return f"[node]: the clock is ... s {side} the shared file system's, 60 s allowed"


@outcomes(
    "given",
    [
        ("ok", {}),
        (NOBODY, {"kept": Kept(synchronised=False, error_seconds=16.0)}),
        (SILENT, {"kept": Kept(synchronised=True, error_seconds=5.5)}),
        ("ok", {"ahead": -1.0}),
        ("ok", {"ahead": 1.0}),
        (f"warn {off('behind')}", {"ahead": -30.0}),
        (f"warn {off('ahead of')}", {"ahead": 30.0}),
        (f"fail {off('behind')}", {"ahead": -90.0}),
        (f"fail {off('ahead of')}", {"ahead": 90.0}),
        ("fail [node]: ...", {"ahead": 30.0, "fail_seconds": 10}),
        ("not checked: ...Operation not permitted", {"kept": DENIED}),
        (f"fail {off('ahead of')}; the kernel does not tell...", {"kept": ValueError("?"), "ahead": 90.0}),
        (f"fail {off('behind')}; no time...", {"kept": Kept(synchronised=False, error_seconds=16.0), "ahead": -90.0}),
        ("not checked: ...the clock was set back meanwhile", {"jump": -100.0}),
    ],
)
def test_a_distance_is_told_and_then_a_fault(tmp_path: Path, expected: str, given: dict[str, Any]) -> None:
    result = check(make_node(tmp_path), **given)
    assert words(result) == Like(expected)
    assert result.values.get("clock_offset_seconds", 0) == pytest.approx(given.get("ahead", 0), abs=0.5)


def test_the_figures_are_told_and_a_slow_file_system_is_not_a_wrong_clock(tmp_path: Path) -> None:
    """The stamp is made somewhere between two looks at the clock."""
    figures = {"clock_synchronised": 1.0, "clock_error_seconds": 0.02, "clock_offset_seconds": 0.0}
    assert check(make_node(tmp_path)).values == figures
    assert check(make_node(tmp_path), ahead=-45.0, jump=90.0).values == figures


def test_this_machines_kernel_is_understood() -> None:
    # The kernel calls a clock that it believes more than 16 s wrong not kept (NTP_PHASE_LIMIT).
    assert 0 <= clock.read_kernel().error_seconds <= 17


STA_PLL, STA_UNSYNC = 0x0001, 0x0040


@pytest.fixture
def adjtimex(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], None]:
    """Let the C library's adjtimex answer something."""

    class FakeLibc:
        adjtimex: Callable[..., int]

    def answer(how: Callable[..., int]) -> None:
        libc = FakeLibc()
        libc.adjtimex = how
        monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: libc)

    return answer


@pytest.mark.parametrize(("status", "synchronised"), [(STA_PLL, True), (STA_PLL | STA_UNSYNC, False)])
def test_the_kernels_answer_is_read(adjtimex: Callable[..., None], status: int, synchronised: bool) -> None:
    """At the offsets of struct timex on 64-bit Linux: maxerror 24, status 40, time 72."""

    def answer(timex: ctypes.Array[ctypes.c_long]) -> int:
        struct.pack_into("q", timex, 24, 31_500)
        struct.pack_into("i", timex, 40, status)
        struct.pack_into("q", timex, 72, int(time.time()))
        return 0

    adjtimex(answer)
    assert clock.read_kernel() == Kept(synchronised=synchronised, error_seconds=0.0315)


def refuse(_timex: object) -> int:
    ctypes.set_errno(errno.EPERM)
    return -1


@outcomes("answer", [("...not as expected", lambda _timex: 0), ("...Operation not permitted", refuse)])
def test_an_answer_in_another_layout_or_none_is_not_checked(
    tmp_path: Path, adjtimex: Callable[..., None], expected: str, answer: Callable[..., int]
) -> None:
    adjtimex(answer)
    assert words(clock.run(make_node(tmp_path), FakeRunner(), Thresholds())) == Like(f"not checked: {expected}")


def test_a_jail_that_cannot_be_asked_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    assert check(make_node(tmp_path, jail=tmp_path / "empty")).status == "not checked"
    monkeypatch.setattr(os, "utime", lambda *_: os.open(tmp_path / "absent", os.O_RDONLY))
    assert words(check(make_node(tmp_path))) == Like("not checked: ...No such file or directory...")


def test_a_pool_without_a_jail_asks_the_kernel_alone(tmp_path: Path) -> None:
    assert check(make_node(tmp_path, jail=None), ahead=1000.0).status == "ok"
