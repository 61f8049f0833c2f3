"""The program `policy` as a pod starts it: what it prints, how it ends, and what it waits for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from images.accounting import policy
from images.accounting.policy import Applier
from images.accounting.present import Slurm, read
from images.common import process
from images.common.command import Result
from images.common.policy.document import load
from images.common.policy.reservation import create, has_ended, parse, settled
from images.common.process import CannotGoOnError, RefusedError
from tests.fakes.commands import FakeClock
from tests.fakes.sacctmgr import FakeSlurm

ENVIRONMENT = {"CLUSTER_NAME": "test", "CONTROLLER": "controller-0:6817", "ACCOUNTING": "slurmdbd-0:6819"}
NOW = 1_795_300_000.0  # 2026-11-21T22:26:40

DOCUMENT: dict[str, Any] = {
    "version": 1,
    "prune": False,
    "accounts": {"ml": {"parent": "root", "description": "ml", "organization": "ml", "fairshare": 10}},
    "qos": {},
    "users": {"ann": {"default_account": "ml", "admin_level": "none", "associations": {"ml": {"fairshare": 2}}}},
    "reservations": {},
}

RESERVATIONS = """\
ReservationName=maint StartTime=2026-12-08T08:00:00 EndTime=2026-12-08T10:00:00 Duration=02:00:00 \
Nodes=gpu-[0-2],cpu-0 NodeCnt=4 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,WEEKLY,SPEC_NODES \
TRES=cpu=8 Users=root Groups=(null) Accounts=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null) \
Comment=slurmstack
ReservationName=course StartTime=2026-11-21T20:00:00 EndTime=2026-12-02T08:00:00 Duration=10-12:00:00 Nodes=cpu-1 \
NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=main Flags=IGNORE_JOBS TRES=cpu=2 AllowedPartitions=(null) \
QOS=(null) Users=(null) Groups=(null) Accounts=ml State=ACTIVE BurstBuffer=(null) MaxStartDelay=(null)
"""


def reservation(**changes: Any) -> dict[str, Any]:
    wanted = {
        "start": 1796112000, "duration": 7200, "nodes": ("gpu-0",), "node_count": None, "partition": None, "users": (),
        "accounts": ("ml",), "repeat": None, "maintenance": False, "ignore_jobs": False, "comment": "slurmstack",
    }  # fmt: skip
    return {**wanted, **changes}


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Any, *options: str, document: Any = DOCUMENT) -> int:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "end_on_sigterm", lambda: None)
    path = tmp_path / "policy.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    try:
        policy.main([*options, str(path)], runner=slurm, clock=FakeClock())
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_document_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for document in ("not json", json.dumps({**DOCUMENT, "version": 2}), "[]", '{"version": 1}'):
        assert start(tmp_path, monkeypatch, FakeSlurm(), document=document) == RefusedError.status
        assert capsys.readouterr().out.startswith("policy: ")


def test_slurmdbd_that_goes_away_half_way_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = FakeSlurm(refuse=lambda words: "Connection refused" if words[2:4] == ["add", "user"] else None)

    assert start(tmp_path, monkeypatch, slurm) == CannotGoOnError.status
    assert "a daemon went away" in capsys.readouterr().out

    slurm.refuse = lambda _: None
    assert start(tmp_path, monkeypatch, slurm) == 0
    assert ("ann", "ml", "") in slurm.associations


def test_a_machine_that_cannot_start_a_command_now_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job ends for good at the status of a refusal, and tries again at any other."""

    def full(argv: Sequence[str], **_: Any) -> Result:
        raise BlockingIOError("no room for another process")

    with pytest.raises(BlockingIOError):
        start(tmp_path, monkeypatch, full)


def test_a_comment_with_the_separator_and_a_line_break_does_no_harm() -> None:
    slurm = FakeSlurm()
    slurm._change(["add", "account", "odd", "cluster=test", "parent=root"])
    slurm.accounts["odd"]["comment"] = "a|b\nc"

    slurm.accounts["odd"]["description"] = "a\u2028b\x0cc"

    found = read(Slurm(runner=slurm, cluster="test"))

    assert found.accounts[("odd",)]["description"] == "a\u2028b\x0cc", "only a line break ends a line"
    assert found.accounts[("odd",)]["comment"] == "a|b"
    assert found.accounts.keys() == {("odd",)}


def test_reservations_of_the_tests_of_nodes_are_no_part_of_the_policy() -> None:
    comment = "re-test of cpu-speed, last run never, drained 2026-11-21T21:56:10Z: health/cpu-speed [hardware]: slow"
    retest = RESERVATIONS.replace("=maint ", "=health-test-gpu-0 ")
    assert set(parse(retest)) == {("health-test-gpu-0",), ("course",)}, "somebody else's, of that name"
    assert set(parse(retest.replace("Comment=slurmstack", f"Comment={comment}"))) == {("course",)}


def test_a_repeated_reservation_that_has_moved_on_is_no_difference() -> None:
    week = 7 * 86400
    wanted = reservation(repeat="weekly")

    assert settled({**wanted, "start": wanted["start"] + 2 * week}, wanted, NOW)["start"] == wanted["start"] + 2 * week
    assert settled({**wanted, "start": wanted["start"] + week + 60}, wanted, NOW)["start"] == wanted["start"]


def test_a_reservation_that_is_over_is_told_and_not_made_again() -> None:
    wanted = {**reservation(start=int(NOW) - 7201), "nodes": ["gpu-0"], "users": [], "accounts": ["ml"]}
    assert has_ended(wanted, NOW)
    slurm, log = FakeSlurm(), list[str]()
    applier = Applier(
        slurm=Slurm(runner=slurm, cluster="test"), log=log.append, wall_time=lambda: NOW, clock=FakeClock()
    )

    applier.bring_in_line(load(json.dumps({**DOCUMENT, "reservations": {"over": wanted}})))

    assert "! reservation over has ended: it is not made again" in log
    assert not [words for words in slurm.commands if words[0] == "scontrol"]


def test_a_repeated_reservation_begins_at_the_next_time_of_its_kind() -> None:
    friday = 1795161600 - 7 * 86400  # 2026-11-13T08:00:00

    def first_start(repeat: str) -> str:
        return create("r", reservation(start=friday, repeat=repeat), NOW)[3]  # NOW is a Saturday evening

    assert first_start("weekday") == "starttime=2026-11-23T08:00:00"
    assert first_start("weekend") == "starttime=2026-11-22T08:00:00"
    assert first_start("weekly") == "starttime=2026-11-27T08:00:00"


def test_a_reservation_waits_for_its_nodes_and_nothing_is_changed_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Registering(FakeSlurm):
        def __call__(self, argv: Sequence[str], **options: Any) -> Result:
            if list(argv[:3]) == ["scontrol", "show", "node"]:
                return Result(code=0, stdout="NodeName=gpu-1 Arch=x86_64 State=IDLE Weight=1\n")
            return super().__call__(argv, **options)

    slurm = Registering()
    document = {**DOCUMENT, "reservations": {"maint": reservation(nodes=["gpu-0", "gpu-1"])}}

    assert start(tmp_path, monkeypatch, slurm, document=document) == RefusedError.status

    printed = capsys.readouterr().out
    assert "policy: waiting for nodes gpu-0, which a reservation needs\n" in printed
    assert printed.endswith("policy: error: not there: nodes gpu-0, which a reservation needs; nothing was changed\n")
    assert slurm.commands == []
