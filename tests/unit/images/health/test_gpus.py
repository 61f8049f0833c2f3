"""What gpu-presence and gpu-free make of nvidia-smi: nobody is accused without need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from images.common.command import Result
from images.common.health.contract import Node
from images.common.health.contract import Result as Found
from images.health.checks import gpu_free, gpu_presence
from images.health.runner import attempt
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import (
    ABSENT,
    GARBAGE,
    HANGS,
    Like,
    Smi,
    add_process,
    machine,
    outcomes,
    said,
    table,
    text,
    words,
)

PRESENCE = gpu_presence.CHECK
LOST = text("nvidia/lost-gpu.txt").stdout
OTHERS = Smi("h100-8", gone=[5])(["nvidia-smi", "--query-gpu=index,pci.bus_id,name"]).stdout
OFF_THE_BUS = "of 8 GPUs are there: Unable to determine the device handle for GPU0000:AB:00.0..."
NO_DRIVER, MISMATCH = text("nvidia/no-driver.txt").stdout, text("nvidia/mismatch.txt").stdout
ACTION = "gpu_recovery_action"


@outcomes(
    "answer",
    [
        ("ok", Smi("h100-8")),
        ("fail [hardware]: 7 of 8 GPUs are there", Smi("h100-8", gone=[5])),
        (f"fail [hardware]: 7 {OFF_THE_BUS}", Result(code=0, stdout=LOST + OTHERS)),
        (f"fail [hardware]: 7 {OFF_THE_BUS}", Result(code=15, stdout=OTHERS, stderr=LOST)),
        (f"fail [hardware]: 0 {OFF_THE_BUS}", Result(code=15, stdout=LOST)),
        ("not checked: ...new words", Result(code=15, stdout="new words\n")),
        ("fail [hardware]: 0 of 8 GPUs are there", Result(code=6, stdout="No devices were found\n")),
        ("fail [hardware]: GPU 3: GPU is lost", Smi("h100-8", {(3, "name"): "[GPU is lost]"})),
        ("fail [hardware]: GPU 6: the driver asks for: GPU Reset", Smi("h100-8", {(6, ACTION): "GPU Reset"})),
        ("warn [hardware]: GPU 6: the driver asks for: Drain P2P", Smi("h100-8", {(6, ACTION): "Drain P2P"})),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=9, stdout=NO_DRIVER)),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=18, stdout=MISMATCH)),
        ("not checked: nvidia-smi did not end in 8 s", HANGS),
        ("not checked: there is no nvidia-smi", ABSENT),
        ("not checked: nvidia-smi says something unexpected: Segmentation fault (core dumped)", GARBAGE),
        ("not checked: ...unexpected: 0, GPU-1", Result(code=0, stdout="0, GPU-1\n")),
        ("ok", Smi("h100-8", unknown=["gpu_recovery_action"])),  # a driver before R570
    ],
)
def test_all_gpus_have_to_be_there(tmp_path: Path, expected: str, answer: Result | Smi) -> None:
    assert said(tmp_path, PRESENCE, machine(answer)) == Like(expected)


FREE = "0, 4\n1, 0\n"
BUSY = "0, 4\n1, 38021\n"
LOST_ONE = "1, [GPU is lost]\n"
IN_USE = "fail [user]: GPU 1: 38021 MiB in use before a job"
SHARED: dict[str, Any] = {"other_jobs": True}


def look(root: Path, runner: FakeRunner, *, used_mib: float | None = None, **node: Any) -> Found:
    (root / "proc").mkdir(exist_ok=True)
    limits = {} if used_mib is None else {"used_mib": used_mib}
    there = Node(
        **{
            "name": "w-0",
            "gpus": 2,
            "root": root,
            "job": "17",
            "job_gpus": (0, 1),
            "limits": {"gpu-free": limits},
            **node,
        }
    )
    return attempt(gpu_free.CHECK, there, runner)


def smi(memory: str) -> FakeRunner:
    return FakeRunner({"nvidia-smi --query-gpu": Result(code=0, stdout=memory)})


@table(
    "runner, node, expected",
    {
        "free GPUs": (smi(FREE), {}, "ok"),
        "memory in use": (smi(BUSY), {}, IN_USE),
        "a site allows more": (smi(BUSY), {"used_mib": 40000}, "ok"),
        "other jobs have some": (smi(BUSY), {**SHARED, "job_gpus": (1,)}, "not checked: other jobs ..."),
        "other jobs, and all are free": (smi(FREE), {**SHARED, "job_gpus": (1,)}, "ok"),
        "a driver away": (FakeRunner({"": Result(code=9, stdout="has failed")}), {}, "not checked: has failed"),
        "one is lost": (smi("0, 4\n" + LOST_ONE), {}, f"fail [hardware]: 1 of 2 GPUs are there: {LOST_ONE.strip()}"),
        "fewer than promised": (smi("0, 4\n"), {}, "fail [hardware]: 1 of 2 GPUs are there"),
        "GPUs that others use, too": (smi(BUSY), {"shares_gpus": True}, "not checked: others ..."),
        "a figure that is none": (smi("0, [N/A]\n"), {}, "not checked: nvidia-smi said ..."),
        "a job without GPUs": (smi(BUSY), {"job_gpus": ()}, "ok"),
    },
)
def test_a_job_gets_gpus_that_nobody_uses(
    tmp_path: Path, runner: FakeRunner, node: dict[str, Any], expected: str
) -> None:
    assert words(look(tmp_path, runner, **node)) == Like(expected)


def test_a_job_that_has_just_started_is_seen(tmp_path: Path) -> None:
    add_process(tmp_path / "proc", 11, comm="slurmstepd", title="slurmstepd: [18.0]", uid=0)
    assert words(look(tmp_path, smi(BUSY))).startswith("not checked: ")
