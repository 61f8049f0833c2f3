"""What gpu-presence makes of nvidia-smi."""

from __future__ import annotations

from pathlib import Path

from images.common.command import Result
from images.health.checks import gpu_presence
from images.health.nvidia import smi
from tests.unit.images.health.gpus import (
    ABSENT,
    DEFAULTS,
    GARBAGE,
    HANGS,
    Smi,
    machine,
    node,
    said,
    text,
)
from tests.unit.images.health.tables import Like, outcomes

PRESENCE = gpu_presence.CHECK
LOST = text("nvidia/lost-gpu.txt").stdout
OTHERS = Smi("h100-8", gone=[5])(["nvidia-smi", f"--query-gpu={','.join(smi.FIELDS)}"]).stdout
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
        ("fail [hardware]: 0 of 8 GPUs are there: new words", Result(code=15, stdout="new words\n")),
        ("fail [hardware]: 0 of 8 GPUs are there", Result(code=6, stdout="No devices were found\n")),
        ("fail [hardware]: GPU 6: the driver asks for: GPU Reset", Smi("h100-8", {(6, ACTION): "GPU Reset"})),
        ("warn [hardware]: GPU 6: the driver asks for: Drain P2P", Smi("h100-8", {(6, ACTION): "Drain P2P"})),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=9, stdout=NO_DRIVER)),
        ("fail [node]: the NVIDIA driver does not work: ...", Result(code=18, stdout=MISMATCH)),
        ("not checked: nvidia-smi did not end in 8 s", HANGS),
        ("not checked: there is no nvidia-smi", ABSENT),
        ("not checked: nvidia-smi says something unexpected: Segmentation fault (core dumped)", GARBAGE),
        ("not checked: ...unexpected: 0, GPU-1", Result(code=0, stdout="0, GPU-1\n")),
        ("not checked: ...one GPU twice", Smi("h100-8", {(7, "index"): "6"})),
    ],
)
def test_all_gpus_have_to_be_there(tmp_path: Path, expected: str, answer: Result | Smi) -> None:
    assert said(tmp_path, PRESENCE, machine(answer)) == Like(expected)


def test_all_gpus_of_any_type_are_there(tmp_path: Path) -> None:
    for name, gpus in [("h100-8", 8), ("rtx4090-2", 2), ("t4-1", 1)]:
        where, runner = node(tmp_path / name, gpus), machine(Smi(name))
        result = PRESENCE.run(where, runner, DEFAULTS)
        assert result.status == "ok"
        assert result.values == {"gpus_usable": gpus, "gpus_expected": gpus}


def test_a_gpu_that_tells_only_that_it_is_unusable_is_a_fault_and_not_believed(tmp_path: Path) -> None:
    for number, words in enumerate(["GPU is lost", "GPU requires reset"]):
        where = node(tmp_path / str(number))
        runner = machine(Smi("h100-8", {(3, "name"): f"[{words}]"}))
        result = PRESENCE.run(where, runner, DEFAULTS)
        assert (result.status, result.fault, result.message) == ("fail", "hardware", f"GPU 3: {words}")
        assert result.values["gpus_usable"] == 7
