"""The node's record, as `scontrol show node` prints it."""

from __future__ import annotations

import pytest

from images.common.command import Result
from images.health.record import NoRecordError, Record, drain, read_record, write_comment
from tests.unit.images.fakes import FakeRunner

SHOWN = """NodeName=w-0 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=1.60
   AvailableFeatures=main,Comment=x
   Gres=gpu:8
   NodeAddr=10.0.0.7 NodeHostName=w-0 Version=24.11.5
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=main
   BootTime=2026-11-21T21:00:00 SlurmdStartTime=2026-11-21T21:00:01
{more}
"""


def shown(state: str = "IDLE+DYNAMIC_NORM", *more: str) -> FakeRunner:
    text = SHOWN.format(state=state, more="\n".join(f"   {line}" for line in more))
    return FakeRunner({"scontrol show node w-0": Result(code=0, stdout=text)})


def test_state_reason_and_comment_are_read() -> None:
    runner = shown(
        "IDLE*+DRAIN",
        "Reason=health/gpu-free [user]: GPU 0 [3 GiB] in use [root@2026-11-21T21:55:03]",
        "Comment=health 2026-11-21T21:55:03Z | ok: disks || ask Anna",
    )
    record = read_record("w-0", runner)
    assert record == Record(
        states=frozenset({"IDLE", "DRAIN"}),
        reason="health/gpu-free [user]: GPU 0 [3 GiB] in use",
        comment="health 2026-11-21T21:55:03Z | ok: disks || ask Anna",
    )
    assert record.is_drained
    assert record.drained_for == "gpu-free"


@pytest.mark.parametrize("state", ["DRAINED", "MIXED+DRAIN", "DRAINING", "DOWN*+DRAIN"])
def test_every_kind_of_drain_is_one(state: str) -> None:
    assert read_record("w-0", shown(state)).is_drained


def test_an_undrained_node_has_no_reason_and_no_comment() -> None:
    record = read_record("w-0", shown("ALLOCATED"))
    assert record == Record(states=frozenset({"ALLOCATED"}))
    assert not record.is_drained
    assert record.drained_for == ""


def test_a_reason_that_stayed_after_the_drain_means_nothing() -> None:
    assert (
        read_record("w-0", shown("MIXED", "Reason=health/disks [node]: full [root@2026-11-21T21:55:03]")).drained_for
        == ""
    )


@pytest.mark.parametrize("reason", ["bad memory", "see health/disks", "healthy", "Prolog error"])
def test_an_administrators_reason_names_no_check(reason: str) -> None:
    assert read_record("w-0", shown("IDLE+DRAIN", f"Reason={reason} [anna@2026-11-21T21:55:03]")).drained_for == ""


@pytest.mark.parametrize(
    "answer",
    [
        Result(code=1, stderr="Node w-0 not found"),
        Result(code=124, stderr="scontrol: no answer within 10 s"),
        Result(code=0, stdout="slurm_load_node error\n"),
        Result(code=0),
    ],
)
def test_an_unclear_answer_is_no_record(answer: Result) -> None:
    with pytest.raises(NoRecordError):
        read_record("w-0", FakeRunner({"scontrol": answer}))


def test_changes_go_through_scontrol() -> None:
    runner = FakeRunner()
    write_comment("w-0", "health x", runner)
    drain("w-0", "health/disks [node]: full", runner)
    assert runner.commands == [
        "scontrol update nodename=w-0 comment=health x",
        "scontrol update nodename=w-0 state=drain reason=health/disks [node]: full",
    ]
