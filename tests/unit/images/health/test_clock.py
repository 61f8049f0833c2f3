"""The clock: who keeps it, and how far it is from what all nodes have in common."""

from __future__ import annotations

import ctypes
import errno
import struct
import time
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
        ("ok", {"ahead": 1.0}),
        (f"warn {off('behind')}", {"ahead": -30.0}),
        (f"fail {off('behind')}", {"ahead": -90.0}),
        (f"fail {off('ahead of')}", {"ahead": 90.0}),
        ("fail [node]: ...", {"ahead": 30.0, "fail_seconds": 10}),
        ("not checked: ...Operation not permitted", {"kept": DENIED}),
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


def test_the_kernels_answer_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the offsets of struct timex on 64-bit Linux: maxerror 24, status 40, time 72."""
    libc = type("FakeLibc", (), {"status": 0x0001})()

    def answer(timex: ctypes.Array[ctypes.c_long]) -> int:
        struct.pack_into("q", timex, 24, 31_500)
        struct.pack_into("i", timex, 40, libc.status)
        struct.pack_into("q", timex, 72, int(time.time()))
        return 0

    libc.adjtimex = answer
    monkeypatch.setattr(ctypes, "CDLL", lambda *_a, **_k: libc)
    assert clock.read_kernel() == Kept(synchronised=True, error_seconds=0.0315)
    libc.status |= 0x0040  # STA_UNSYNC
    assert not clock.read_kernel().synchronised
    libc.adjtimex = lambda _timex: 0
    assert words(clock.run(make_node(tmp_path), FakeRunner(), Thresholds())) == Like("not checked: ...not as expected")


def test_a_jail_that_cannot_be_asked_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert check(make_node(tmp_path, jail=tmp_path / "empty")).status == "not checked"
    assert check(make_node(tmp_path, jail=None), ahead=1000.0).status == "ok", "the kernel alone"
