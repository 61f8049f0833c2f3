"""What the watcher reads from Slurm.

The data were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`), not recorded.
"""

from __future__ import annotations

import json

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.health.report import decode
from images.health.watch.slurm import Record, Slurm, SlurmError, parse_nodes
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
        "a time that is not set": ("reason_changed_at", [{"set": False, "number": 5}], {"reason_at": None}),
        "for ever": ("reason_changed_at", [{"set": True, "infinite": True, "number": 5}], {"reason_at": None}),
        "a state may be a text": ("state", ["MIXED+DRAIN"], {"states": {"MIXED", "DRAIN"}}),
        "no reason": ("reason", [None, 7, ""], {"reason": ""}),
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


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"nodes": 7}', '{"nodes": ["w-0"]}', "null"])
def test_garbage_is_an_error_and_never_an_empty_cluster(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_nodes(text)


@pytest.mark.parametrize("code", [1, TIMED_OUT, NO_PROGRAM])
@pytest.mark.parametrize("question", ["nodes", "node", "jobs_on", "has_jobs"])
def test_no_answer_is_an_error(code: int, question: str) -> None:
    slurm = Slurm(runner=FakeRunner({"": Result(code=code, stdout='{"nodes": []}', stderr="Unable to contact")}))
    with pytest.raises(SlurmError, match="Unable to contact"):
        getattr(slurm, question)(*([] if question == "nodes" else ["w-0"]))


def test_the_changes_are_slurms_own_commands() -> None:
    runner = FakeRunner()
    slurm = Slurm(runner=runner)
    slurm.drain("w-0", "health/x [node]: a b")
    slurm.set_down("w-0", "r")
    slurm.set_reason("w-0", "r")
    slurm.undrain("w-0", "lifted")
    slurm.requeue("17")
    assert runner.commands == [
        "scontrol update nodename=w-0 state=drain reason=health/x [node]: a b",
        "scontrol update nodename=w-0 state=down reason=r",
        "scontrol update nodename=w-0 reason=r",
        "scontrol update nodename=w-0 state=undrain reason=lifted",
        "scontrol requeue 17",
    ]


@table(
    "said, jobs, has_jobs",
    {
        "none": (" \n", [], False),
        "each once, as numbers": ("120\n17\n17\nslurm_load: x\n", ["17", "120"], True),
        "what is not understood may be one": ("what?\n", [], True),
    },
)
def test_jobs_of_a_node(said: str, jobs: list[str], has_jobs: bool) -> None:
    runner = FakeRunner({"squeue": Result(code=0, stdout=said)})
    slurm = Slurm(runner=runner)
    assert (slurm.has_jobs("w-0"), slurm.jobs_on("w-0")) == (has_jobs, jobs)
    assert "completing" in runner.commands[0]
    assert "suspended" in runner.commands[0]


def test_a_record_that_is_gone_is_none() -> None:
    slurm = Slurm(runner=FakeRunner({"scontrol": Result(code=0, stdout='{"nodes": []}')}))
    assert slurm.node("w-0") is None
