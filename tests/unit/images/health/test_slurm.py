"""What the watcher reads from Slurm.

The data were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`), not recorded.
"""

from __future__ import annotations

import json

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.health.report import decode
from images.health.slurm import Record, Reservation, Slurm, SlurmError, parse_nodes
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import DATA
from tests.unit.images.health.tables import table

IDLE = Record(name="w-0", states=frozenset({"IDLE"}), address="w-0")
THEN = 1_795_000_000


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_records_of_both_versions_are_read(version: str) -> None:
    first, second, third = parse_nodes((DATA / f"nodes-{version}.json").read_text())
    assert (first.name, first.address, first.port) == ("w-0", "10.244.1.17", 6818)
    assert (first.states, first.reason, first.reason_at) == (frozenset({"IDLE", "DYNAMIC_NORM"}), "", None)
    report = decode(first.comment)
    assert report is not None
    assert set(report.results) == {"clock", "disks", "dns", "munge"}
    assert second.states >= {"MIXED", "DRAIN"}
    assert (second.reason, second.reason_at) == ("health/disks [node]: /jail 97 % used", THEN)
    assert third.states >= {"DOWN", "NOT_RESPONDING"}


@table(
    "field, values, read",
    {
        "a time is plain or optional": (
            "reason_changed_at",
            [THEN, float(THEN), {"set": True, "infinite": False, "number": THEN}],
            {"reason_at": THEN},
        ),
        "no time": ("reason_changed_at", [0, None, "yesterday", True, {}], {"reason_at": None}),
        "for ever": ("reason_changed_at", [{"set": True, "infinite": True, "number": 5}], {"reason_at": None}),
        "a state may be a text": ("state", ["MIXED+DRAIN"], {"states": {"MIXED", "DRAIN"}}),
        "no comment": ("comment", [None, 7, ""], {"comment": ""}),
    },
)
def test_what_is_missing_is_empty(field: str, values: list[object], read: dict[str, object]) -> None:
    for value in values:
        given = {"name": "w-0", "state": ["IDLE"], field: value}
        (record,) = parse_nodes(json.dumps({"nodes": [given]}))
        assert vars(record) == vars(IDLE) | read


def test_a_record_without_name_or_state_is_left_out() -> None:
    assert parse_nodes('{"nodes": [{"state": ["IDLE"]}, {"name": "w-0"}, {"name": "w-1", "state": []}]}') == []
    assert parse_nodes('{"nodes": []}') == []


def test_garbage_or_no_answer_is_an_error_and_never_an_empty_cluster() -> None:
    for text in ("no json", "[]", "{}", '{"nodes": ["w-0"]}', '{"nodes": null}'):
        with pytest.raises(SlurmError):
            parse_nodes(text)
    for code in (1, TIMED_OUT, NO_PROGRAM):
        slurm = Slurm(runner=FakeRunner({"": Result(code=code, stdout='{"nodes": []}', stderr="Unable to contact")}))
        for question in (slurm.nodes, lambda: slurm.node("w-0"), lambda: slurm.jobs_of("w-0"), slurm.reservations):  # noqa: B023
            with pytest.raises(SlurmError, match="Unable to contact"):
                question()


def test_the_changes_are_slurms_own_commands() -> None:
    runner = FakeRunner()
    slurm = Slurm(runner=runner)
    slurm.drain("w-0", "health/x [node]: a b")
    slurm.update("w-0", state="down", reason="r")
    slurm.update("w-0", comment="a b")
    slurm.undrain("w-0", "lifted")
    slurm.requeue("17")
    slurm.delete_reservation("health-test-w-0")
    assert runner.commands == [
        "scontrol update nodename=w-0 state=drain reason=health/x [node]: a b",
        "scontrol update nodename=w-0 state=down reason=r",
        "scontrol update nodename=w-0 comment=a b",
        "scontrol update nodename=w-0 state=undrain reason=lifted",
        "scontrol requeue incomplete 17",
        "scontrol delete reservationname=health-test-w-0",
    ]


def test_the_jobs_of_a_node_are_those_that_are_ending_too() -> None:
    runner = FakeRunner({"squeue": Result(code=0, stdout=" \n 17\nwhat?\n")})
    assert Slurm(runner=runner).jobs_of("w-0", "--user=7") == ["17", "what?"]
    states = "running,suspended,completing,configuring,stopped,signaling,stage_out"
    assert runner.commands == [f"squeue --noheader --states={states} --nodelist=w-0 --user=7 --format=%A"]


def test_one_node_is_read_as_it_is_now() -> None:
    shown = '{"nodes": [{"name": "w-0", "state": ["IDLE"]}]}'
    slurm = Slurm(runner=FakeRunner({"scontrol show node": Result(code=0, stdout=shown)}))
    assert (slurm.node("w-0"), slurm.node("w-1")) == (IDLE, None)
    gone = Result(code=1, stderr="slurm_load_node error: Invalid node name specified\nNode w-1 not found")
    assert Slurm(runner=FakeRunner({"scontrol show node": gone})).node("w-1") is None


@table(
    "states, reason, drained, check",
    {
        "ours": (("IDLE", "DRAIN"), "health/gpu-free [user]: GPU 0 in use", True, "gpu-free"),
        "a machine that is gone": (("DOWN",), "health/kubernetes [node]: machine m is gone", False, "kubernetes"),
        "one that somebody has failed": (("IDLE", "FAIL"), "health/gpu-xid [hardware]: set by hand", False, None),
        "a reason that stayed after the drain": (("MIXED",), "health/disks [node]: full", False, None),
        "an administrator's that names a check": (("IDLE", "DRAIN"), "see health/disks", True, None),
        "Slurm's own": (("IDLE", "DRAIN"), "Prolog error", True, None),
    },
)
def test_whose_a_drain_is(states: tuple[str, ...], reason: str, drained: bool, check: str | None) -> None:
    record = Record(name="w-0", states=frozenset(states), reason=reason)
    assert (record.is_drained, record.own and record.own.check) == (drained, check)


def test_gpus_are_counted() -> None:
    for gres, gpus in [
        (None, 0), ("gpu:8", 8), ("gpu:h100:8(S:0-1),shard:h100:32(S:0-1)", 8), ("gpu:a:1,gpu:b:2", 3), ("nic:4", 0),
        ("gpu:1g.10gb:7(S:0),gpu:3g.40gb:2", 0), ("gpu", 0),
    ]:  # fmt: skip
        shown = json.dumps({"nodes": [{"name": "a", "state": ["IDLE"], "gres": gres}]})
        assert parse_nodes(shown)[0].gpus == gpus, gres


RESERVATIONS = """\
ReservationName=course StartTime=2026-11-21T21:55:03 EndTime=2026-11-21T22:55:03 Duration=01:00:00 Nodes=w-[1-2] \
NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=4 Users=carol Groups=(null) \
Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) MaxStartDelay=(null)
ReservationName=health-test-w-0 StartTime=2026-11-21T21:55:03 EndTime=2027-11-21T21:55:03 Duration=365-00:00:00 \
Nodes=w-0 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=2 \
Users=slurm Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) MaxStartDelay=(null) \
Comment=re-test of cpu-speed: Nodes=x Comment=y
"""
"""After `slurm_sprint_reservation_info` of 24.11 and 26.05."""


def test_reservations_are_read_with_their_comments() -> None:
    slurm = Slurm(runner=FakeRunner({"scontrol show reservation": Result(code=0, stdout=RESERVATIONS)}))
    assert slurm.reservations() == [
        Reservation(name="course", nodes="w-[1-2]", comment=""),
        Reservation(name="health-test-w-0", nodes="w-0", comment="re-test of cpu-speed: Nodes=x Comment=y"),
    ]
    without = RESERVATIONS.replace(" Nodes=w-0 ", " Nodes= ")
    slurm = Slurm(runner=FakeRunner({"scontrol show reservation": Result(code=0, stdout=without)}))
    assert [one.nodes for one in slurm.reservations()] == ["w-[1-2]", ""], "one whose node is gone is still to be ended"
    none = Result(code=0, stdout="No reservations in the system\n")
    assert Slurm(runner=FakeRunner({"scontrol": none})).reservations() == []
