"""The supervisor of one of two controllers: when its turn is over, and what becomes of slurmctld then."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from images.common import terms
from images.common.kubernetes import KubeError
from images.common.wait import Clock
from images.controller import supervisor
from images.controller.daemon import Daemon
from images.controller.lease import RENEW_SECONDS
from images.controller.supervisor import Over

LOG = list[str]


@pytest.fixture
def term(tmp_path: Path) -> Path:
    directory = tmp_path / "term-3"
    directory.mkdir()
    return directory


class Volume:
    """Answers a write after so many seconds, or when it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float | None) -> None:
        self.let_go = threading.Event()
        monkeypatch.setattr(terms, "touch", lambda _: self.let_go.wait(seconds))
        monkeypatch.setattr(supervisor, "VOLUME_SECONDS", 0.8)


class Noted:
    """A Lease that anybody may have, and what is done with it."""

    def __init__(self, noted: LOG) -> None:
        self.noted = noted
        self.is_away = False

    def renew(self, _: int) -> bool:
        return True

    def is_mine(self, _: int) -> bool:
        return False

    def acquire(self, least: int) -> int:
        self.noted.append(f"acquired {least}")
        return least

    def release(self, term: int) -> None:
        if self.is_away:
            raise KubeError("away")
        self.noted.append(f"released {term}")


def one_of_two(
    noted: LOG, volume: Path, pod: Path, monkeypatch: pytest.MonkeyPatch, me: str = "controller-0"
) -> supervisor.Supervisor:
    for name in ("STATE", "READY", "TURN", "SLURM_CONF"):
        monkeypatch.setattr(supervisor, name, pod / name)
    monkeypatch.setattr(supervisor, "accepts_connections", lambda _: True)
    nothing: Any = None
    lease: Any = Noted(noted)
    owner = (os.getuid(), os.getgid())
    return supervisor.Supervisor(
        kube=nothing, me=me, lease=lease, owner=owner, log=noted.append, volume=volume, command=("/bin/sleep", "987")
    )


@pytest.fixture
def pod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pod")


def test_who_has_lost_the_volume_gives_the_lease_back_before_it_ends_slurmctld_which_may_hang(
    term: Path, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, noted = Volume(monkeypatch, seconds=None), LOG()
    end = Daemon.end

    def noted_end(daemon: Daemon, number: signal.Signals) -> None:
        noted.append(number.name)
        end(daemon, number)

    monkeypatch.setattr(Daemon, "end", noted_end)
    one_of_two(noted, term.parent, pod, monkeypatch)._serve(term)
    volume.let_go.set()
    kept = [line for line in noted if not line.startswith("slurmctld has ended")]
    assert kept == ["active: term-3", "released 3", "SIGKILL", f"no longer active: {Over.VOLUME}"]
    assert not (pod / "TURN").exists(), "it would go on without the Lease"


def test_a_standby_whose_volume_hangs_takes_no_lease_is_not_ready_and_ends_when_it_is_to(
    term: Path, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, noted = Volume(monkeypatch, seconds=None), LOG()
    one = one_of_two(noted, term.parent, pod, monkeypatch)
    whole = threading.Thread(target=supervisor._run, args=(one, noted.append), daemon=True)
    whole.start()
    time.sleep(1.5)
    assert noted == [Over.VOLUME]
    assert supervisor._answers(one)("/ready").status == HTTPStatus.SERVICE_UNAVAILABLE
    assert supervisor._answers(one)("/live").status == HTTPStatus.OK
    one.is_ending.set()
    whole.join(timeout=2)
    assert not whole.is_alive()
    volume.let_go.set()
    time.sleep(0.3)
    assert noted == [Over.VOLUME], "nor does it when the volume answers at last"


@pytest.mark.parametrize("refuses", ["volume", "API server", "munged"])
def test_a_standby_that_could_not_take_over_is_not_ready(
    term: Path, pod: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """An update would go on to the only one that can work."""
    refused = [True]

    def refuse(error: Exception) -> None:
        if refused:
            raise error

    monkeypatch.setattr(supervisor, "VOLUME_SECONDS", 0.3)
    one = one_of_two(LOG(), term.parent, pod, monkeypatch)
    if refuses == "volume":
        monkeypatch.setattr(terms, "touch", lambda _: refuse(OSError(errno.EROFS, "read-only")))
        monkeypatch.setattr(one._lease, "acquire", lambda _: None)
    elif refuses == "API server":
        monkeypatch.setattr(one._lease, "acquire", lambda _: refuse(KubeError("forbidden", 403)))
    else:
        monkeypatch.setattr(supervisor, "accepts_connections", lambda _: not refused)
        monkeypatch.setattr(supervisor, "SECONDS", 0.1)
        monkeypatch.setattr(terms, "take_over", lambda *_: pytest.fail("it could not start") if refused else term)

    def ready() -> HTTPStatus:
        return supervisor._answers(one)("/ready").status

    waiting = threading.Thread(target=one._await_turn)
    waiting.start()
    said = [ready()]
    time.sleep(0.8)
    said.append(ready())
    refused.clear()
    time.sleep(0.5)
    said.append(ready())
    one.is_ending.set()
    waiting.join()
    assert said == [HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK]


SLOW = ("/bin/sh", "-c", "trap 'sleep 1.5; exit' TERM; while :; do sleep 0.05; done")
"""A slurmctld that has records to save which slurmdbd does not take."""


@pytest.mark.parametrize("mine", [True, False], ids=["mine", "another's"])
def test_the_turn_is_held_until_slurmctld_has_saved_all_and_not_longer(
    term: Path, pod: Path, monkeypatch: pytest.MonkeyPatch, *, mine: bool
) -> None:
    noted = LOG()
    one = one_of_two(noted, term.parent, pod, monkeypatch)
    one._daemon = Daemon(SLOW, noted.append, Clock())
    asked: list[float] = []

    def renew(_: int) -> bool:
        asked.append(time.monotonic())
        return mine or not one.is_ending.is_set()

    monkeypatch.setattr(one._lease, "renew", renew)
    worker = threading.Thread(target=one._serve, args=(term,))
    worker.start()
    time.sleep(1)
    one.is_ending.set()
    begun = time.monotonic()
    worker.join()
    took = time.monotonic() - begun
    assert (took > 1.4) is mine, "the other one has the state already, and slurmctld is killed"
    assert [at for at in asked if at > begun + RENEW_SECONDS] or not mine
    assert noted[-1].startswith("ended in order")


def test_a_second_controller_takes_nothing_from_one_that_knows_of_no_terms(
    tmp_path: Path, pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made while the only one still runs, without a Lease."""
    (tmp_path / "job_state").touch()
    said: LOG = []
    second = one_of_two(said, tmp_path, pod, monkeypatch, me="controller-1")
    threading.Timer(0.5, second.is_ending.set).start()
    second._await_turn()
    assert said == ["waiting for controller-0 to begin the first term; standing by"]
    assert [path.name for path in tmp_path.iterdir()] == ["job_state"]
