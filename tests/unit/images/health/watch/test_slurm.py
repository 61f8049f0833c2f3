"""What the watcher reads from Slurm.

The data were written by hand after the tables of both versions' parsers (`PARSER_ARRAY(NODE)`), not recorded.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, TIMED_OUT, Result
from images.health.report import decode
from images.health.watch.slurm import Record, Slurm, SlurmError, parse_nodes
from tests.unit.images.fakes import FakeRunner

DATA = Path(__file__).parents[1] / "data"


def nodes_json(version: str) -> str:
    return (DATA / f"nodes-{version}.json").read_text()


def one(**fields: object) -> Record:
    (record,) = parse_nodes(json.dumps({"nodes": [{"name": "w-0", "state": ["IDLE"], **fields}]}))
    return record


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_records_of_both_versions_are_read(version: str) -> None:
    first, second, third = parse_nodes(nodes_json(version))
    assert (first.name, first.address, first.port) == ("w-0", "10.244.1.17", 6818)
    assert (first.states, first.reason, first.reason_at) == (frozenset({"IDLE", "DYNAMIC_NORM"}), "", None)
    report = decode(first.comment)
    assert report is not None
    assert set(report.results) == {"clock", "disks", "dns", "munge"}
    assert second.states >= {"MIXED", "DRAIN"}
    assert (second.reason, second.reason_at) == ("health/disks [node]: /jail 97 % used", 1_795_000_000)
    assert third.states >= {"DOWN", "NOT_RESPONDING"}


@pytest.mark.parametrize(
    "value", [1_795_000_000, 1_795_000_000.0, {"set": True, "infinite": False, "number": 1_795_000_000}]
)
def test_a_time_may_be_plain_or_optional(value: object) -> None:
    assert one(reason_changed_at=value).reason_at == 1_795_000_000


@pytest.mark.parametrize(
    "value", [0, None, "yesterday", True, {"set": False, "number": 5}, {"set": True, "infinite": True, "number": 5}, {}]
)
def test_a_time_that_is_none_is_unknown(value: object) -> None:
    assert one(reason_changed_at=value).reason_at is None


def test_a_state_may_be_a_text() -> None:
    assert one(state="MIXED+DRAIN").states == {"MIXED", "DRAIN"}


def test_what_is_missing_is_empty() -> None:
    record = one()
    assert (record.reason, record.comment, record.reason_at, record.address) == ("", "", None, "w-0")
    assert one(reason=None, comment=7) == record


def test_a_record_without_name_or_state_is_left_out() -> None:
    assert parse_nodes('{"nodes": [{"state": ["IDLE"]}, {"name": "w-0"}, {"name": "w-1", "state": []}]}') == []
    assert parse_nodes('{"nodes": []}') == []


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"nodes": 7}', '{"nodes": ["w-0"]}', "null"])
def test_garbage_is_an_error_and_never_an_empty_cluster(text: str) -> None:
    with pytest.raises(SlurmError):
        parse_nodes(text)


@pytest.mark.parametrize("code", [1, TIMED_OUT, NO_PROGRAM])
def test_no_answer_is_an_error(code: int) -> None:
    slurm = Slurm(runner=FakeRunner({"": Result(code=code, stdout='{"nodes": []}', stderr="Unable to contact")}))
    for question in (
        slurm.nodes,
        lambda: slurm.node("w-0"),
        lambda: slurm.jobs_on("w-0"),
        lambda: slurm.has_jobs("w-0"),
    ):
        with pytest.raises(SlurmError, match="Unable to contact"):
            question()


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


def test_jobs_are_numbers_and_each_is_there_once() -> None:
    slurm = Slurm(runner=FakeRunner({"squeue": Result(code=0, stdout="120\n17\n17\nslurm_load: x\n")}))
    assert slurm.jobs_on("w-0") == ["17", "120"]


def test_a_node_with_a_job_that_is_ending_or_that_is_not_understood_has_jobs() -> None:
    runner = FakeRunner({"squeue": Result(code=0, stdout=" \n")})
    slurm = Slurm(runner=runner)
    assert not slurm.has_jobs("w-0")
    assert "completing" in runner.commands[0]
    assert "suspended" in runner.commands[0]
    runner.answers["squeue"] = Result(code=0, stdout="what?\n")
    assert slurm.has_jobs("w-0")
    assert slurm.jobs_on("w-0") == []


def test_a_record_that_is_gone_is_none() -> None:
    slurm = Slurm(runner=FakeRunner({"scontrol": Result(code=0, stdout='{"nodes": []}')}))
    assert slurm.node("w-0") is None
