"""The node's record, as `scontrol show node` prints it."""

from __future__ import annotations

import pytest

from images.common.command import Result
from images.health.record import NoRecordError, Record, read_record, write_comment
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.tables import table

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
COMMENT = "health 2026-11-21T21:55:03Z | ok: disks || ask Anna"
BUSY = "health/gpu-free [user]: GPU 0 [3 GiB] in use"


def read(state: str, *more: str) -> Record:
    text = SHOWN.format(state=state, more="\n".join(f"   {line}" for line in more))
    return read_record("w-0", FakeRunner({"scontrol show node w-0": Result(code=0, stdout=text)}))


def test_state_reason_and_comment_are_read() -> None:
    record = read("IDLE*+DRAIN", f"Reason={BUSY} [root@2026-11-21T21:55:03]", f"Comment={COMMENT}")
    assert record == Record(states=frozenset({"IDLE", "DRAIN"}), reason=BUSY, comment=COMMENT)
    assert read("ALLOCATED") == Record(states=frozenset({"ALLOCATED"}))


@table(
    "state, reason, is_drained, check",
    {
        "ours": ("IDLE*+DRAIN", BUSY, True, "gpu-free"),
        "drained": ("DRAINED", "", True, ""),
        "with jobs": ("MIXED+DRAIN", "", True, ""),
        "still with jobs": ("DRAINING", "", True, ""),
        "down": ("DOWN*+DRAIN", "", True, ""),
        "not drained": ("ALLOCATED", "", False, ""),
        "a reason that stayed after the drain": ("MIXED", "health/disks [node]: full", False, ""),
        "an administrator's": ("IDLE+DRAIN", "bad memory", True, ""),
        "an administrator's that names a check": ("IDLE+DRAIN", "see health/disks", True, ""),
        "an administrator's that begins like ours": ("IDLE+DRAIN", "healthy", True, ""),
        "Slurm's own": ("IDLE+DRAIN", "Prolog error", True, ""),
    },
)
def test_a_drain(state: str, reason: str, is_drained: bool, check: str) -> None:
    record = read(state, *([f"Reason={reason} [anna@2026-11-21T21:55:03]"] if reason else []))
    assert (record.is_drained, record.drained_for) == (is_drained, check)


@pytest.mark.parametrize(
    "answer",
    [
        Result(code=1, stderr="Node w-0 not found"),
        Result(code=124, stderr="scontrol: no answer within 10 s"),
        Result(code=0, stdout="slurm_load_node error\n"),
        Result(code=0),
    ],
    ids=repr,
)
def test_an_unclear_answer_is_no_record(answer: Result) -> None:
    with pytest.raises(NoRecordError):
        read_record("w-0", FakeRunner({"scontrol": answer}))


def test_the_comment_goes_through_scontrol() -> None:
    runner = FakeRunner()
    write_comment("w-0", "health x", runner)
    assert runner.commands == ["scontrol update nodename=w-0 comment=health x"]
