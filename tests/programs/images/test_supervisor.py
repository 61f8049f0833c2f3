"""The supervisor of one of two controllers: when its turn is over, and what becomes of slurmctld then."""

from __future__ import annotations

import errno
import os
import threading
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from images.common import terms
from images.common.kubernetes import KubeError
from images.common.wait import Clock
from images.controller import lease as leases
from images.controller import supervisor
from images.controller.lease import Over
from images.controller.supervisor import Daemon
from tests.programs.waiting import HANGS, wait_until

LOG = list[str]


@pytest.fixture
def term(tmp_path: Path) -> Path:
    directory = tmp_path / "term-3"
    directory.mkdir()
    return directory


class Noted:
    """A Lease that anybody may have, and what is done with it."""

    def __init__(self, noted: LOG) -> None:
        self.noted = noted
        self.renew = Mock(return_value=True)
        self.is_mine = Mock(return_value=False)
        self.is_away = False

    def acquire(self, least: int) -> int:
        self.noted.append(f"acquired {least}")
        return least

    def release(self, term: int) -> None:
        if self.is_away:
            raise KubeError("away")
        self.noted.append(f"released {term}")


class One(supervisor.Supervisor):
    """One of two, of which is noted what it says and what it does with the Lease."""

    def __init__(self, volume: Path, me: str = "controller-0") -> None:
        self.noted = LOG()
        lease: Any = Noted(self.noted)
        self.lease = lease
        nothing: Any = None
        super().__init__(
            kube=nothing, me=me, lease=lease, owner=(os.getuid(), os.getgid()), log=self.noted.append,
            volume=volume, command=("/bin/sleep", "987"),
        )  # fmt: skip


@pytest.fixture(autouse=True)
def pod(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp("pod")
    for name in ("STATE", "READY", "TURN", "SLURM_CONF"):
        monkeypatch.setattr(supervisor, name, directory / name)
    monkeypatch.setattr(supervisor, "accepts_connections", lambda _: True)
    return directory


@pytest.fixture
def one(term: Path) -> One:
    return One(term.parent)


def test_who_cannot_rename_the_state_leaves_the_lease_to_the_other_one(
    one: One, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "take_over", Mock(side_effect=OSError(errno.EROFS, "read-only")))
    threading.Timer(0.5, one.is_ending.set).start()
    assert one._await_turn() is None
    assert one.noted[:2] == ["acquired 4", "released 4"]
    assert one.noted.count("acquired 4") == 1, "the other one has time to take it"


@pytest.mark.parametrize("released", [True, False])
def test_a_slurmctld_that_answers_nothing_loses_the_turn_where_the_other_one_can_be_told(
    one: One, term: Path, monkeypatch: pytest.MonkeyPatch, *, released: bool
) -> None:
    one.lease.is_away = not released
    monkeypatch.setattr(Daemon, "hangs", True)
    one._serve(term)
    assert one.noted[-1].endswith(Over.HANGS)
    assert supervisor.TURN.exists() is not released, "the same turn goes on where nobody else can have it"


@pytest.mark.parametrize("mine", [True, False])
def test_the_service_is_led_here_by_who_has_the_lease_alone(
    one: One, monkeypatch: pytest.MonkeyPatch, *, mine: bool
) -> None:
    """Who was paused and wakes in this moment would take it to a pod in which nothing runs."""
    lead_to = Mock()
    monkeypatch.setattr(supervisor, "lead_to", lead_to)

    def is_mine(term: int) -> bool:
        one.is_active = False  # it asks once
        return mine and term == 3

    one.lease.is_mine = is_mine
    one.is_active = True
    one._lead_here(Mock(term=3, ended=threading.Event()))
    assert lead_to.call_args_list == [call(None, "controller-0")] * mine


SLOW = """\
trap "trap '' TERM; while [ ! -e go ]; do sleep 0.02; done; touch saved; exit" TERM
touch up
while :; do sleep 0.02; done
"""
"""A slurmctld that has records to save which slurmdbd does not take before there is a file `go`."""


@pytest.mark.parametrize("mine", [True, False], ids=["mine", "another's"])
def test_the_turn_is_held_until_slurmctld_has_saved_all_and_not_longer(
    one: One, term: Path, pod: Path, monkeypatch: pytest.MonkeyPatch, *, mine: bool
) -> None:
    end = Daemon.end
    one._daemon = Daemon(("/bin/sh", "-c", SLOW), one.noted.append, Clock())
    monkeypatch.chdir(pod)
    asked: list[int] = []

    def renew(number: int) -> bool:
        if one.is_ending.is_set():
            asked.append(number)
        return mine or not asked

    one.lease.renew = renew
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(Daemon, "end", partialmethod(end, seconds=2 * HANGS))
    worker = threading.Thread(target=one._serve, args=(term,))
    worker.start()
    wait_until((pod / "up").exists)
    one.is_ending.set()
    if mine:
        wait_until(lambda: len(asked) > 3)
        assert worker.is_alive()
        (pod / "go").touch()
    worker.join(HANGS)
    assert not worker.is_alive(), "the other one has the state already, and slurmctld is killed"
    assert (pod / "saved").exists() is mine
    assert one.noted[-1].startswith("ended in order")
