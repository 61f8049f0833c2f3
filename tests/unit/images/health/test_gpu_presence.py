"""Whether all GPUs are there; and how nvidia-smi's answers are read, which all GPU checks share."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_memory, gpu_presence, gpu_thermal
from images.health.contract import Result as Found
from images.health.contract import Status
from images.health.nvidia import smi
from tests.unit.images.health.gpus import ABSENT, DEFAULTS, GARBAGE, HANGS, QUERY, Smi, machine, next_run, node, text


def presence_of(path: Path, answer: Result) -> Found:
    return gpu_presence.run(node(path), machine(answer), DEFAULTS)


def test_all_gpus_of_any_type_are_there(tmp_path: Path) -> None:
    for name, gpus in [("h100-8", 8), ("rtx4090-2", 2), ("t4-1", 1)]:
        result = gpu_presence.run(node(tmp_path / name, gpus), machine(Smi(name)), DEFAULTS)

        assert (result.status, result.message, result.fault) == (Status.OK, "", None)
        assert result.values == {"gpus_usable": gpus, "gpus_expected": gpus}


def test_a_gpu_that_is_not_listed_is_a_fault_of_the_hardware(tmp_path: Path) -> None:
    result = gpu_presence.run(node(tmp_path), machine(Smi("h100-8", gone=[5])), DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", "7 of 8 GPUs are there")


def test_a_gpu_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    lost = text("nvidia/lost-gpu.txt").stdout
    others = Smi("h100-8", gone=[5])(["nvidia-smi", f"--query-gpu={','.join(smi.FIELDS)}"]).stdout
    for answer in [
        Result(code=0, stdout=lost + others),
        Result(code=15, stdout=others, stderr=lost),
        Result(code=15, stdout=lost),
    ]:
        result = gpu_presence.run(node(tmp_path / str(id(answer))), machine(answer), DEFAULTS)

        assert (result.status, result.fault) == (Status.FAIL, "hardware")
        assert " of 8 GPUs are there: Unable to determine the device handle for GPU0000:AB:00.0" in result.message


def test_an_exit_code_that_means_a_lost_gpu_is_enough(tmp_path: Path) -> None:
    for answer in (Result(code=15), Result(code=15, stdout="in words of tomorrow\n")):
        result = presence_of(tmp_path / str(len(answer.stdout)), answer)

        assert (result.status, result.fault) == (Status.FAIL, "hardware")
        assert result.message == f"0 of 8 GPUs are there: {answer.message}"


@pytest.mark.parametrize("words", ["[GPU is lost]", "[GPU requires reset]"])
def test_a_gpu_that_tells_only_that_it_is_unusable_is_a_fault(tmp_path: Path, words: str) -> None:
    smi = Smi("h100-8", {(3, "temperature.gpu"): words, (3, "pstate"): words})
    where, runner = node(tmp_path), machine(smi)

    result = gpu_presence.run(where, runner, DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", f"GPU 3: {words[1:-1]}")
    assert result.values["gpus_usable"] == 7
    assert gpu_thermal.run(where, runner, DEFAULTS).status is Status.NOT_CHECKED


def test_what_else_an_unusable_gpu_tells_is_not_believed(tmp_path: Path) -> None:
    smi = Smi("h100-8", {(3, "pstate"): "[GPU requires reset]"})

    assert gpu_thermal.run(node(tmp_path), machine(smi), DEFAULTS).status is Status.NOT_CHECKED


def test_no_devices_is_a_fault_where_gpus_should_be(tmp_path: Path) -> None:
    result = gpu_presence.run(node(tmp_path), machine(Result(code=6, stdout="No devices were found\n")), DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", "0 of 8 GPUs are there")


@pytest.mark.parametrize(("action", "status"), [("GPU Reset", "fail"), ("Node Reboot", "fail"), ("Drain P2P", "warn")])
def test_the_recovery_that_the_driver_asks_for_is_told(tmp_path: Path, action: str, status: str) -> None:
    smi = Smi("h100-8", {(6, "gpu_recovery_action"): action})

    result = gpu_presence.run(node(tmp_path), machine(smi), DEFAULTS)

    assert (result.status, result.fault) == (Status(status), "hardware")
    assert result.message == f"GPU 6: the driver asks for: {action}"


@pytest.mark.parametrize(("name", "code"), [("no-driver", 9), ("mismatch", 18)])
def test_a_driver_that_does_not_run_is_a_fault_of_the_node_for_this_check_only(
    tmp_path: Path, name: str, code: int
) -> None:
    where = node(tmp_path)
    runner = machine(Result(code=code, stdout=text(f"nvidia/{name}.txt").stdout))

    result = gpu_presence.run(where, runner, DEFAULTS)

    assert (result.status, result.fault) == (Status.FAIL, "node")
    assert "the NVIDIA driver does not work: " in result.message
    assert gpu_memory.run(where, runner, DEFAULTS).status is Status.NOT_CHECKED


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HANGS, "nvidia-smi did not end in 8 s"),
        (ABSENT, "there is no nvidia-smi"),
        (GARBAGE, "nvidia-smi says something unexpected: Segmentation fault (core dumped)"),
        (Result(code=0), "nvidia-smi ended with 0: exit code 0"),
        (Result(code=255, stdout="Failed to initialize NVML: Unknown Error\n"), "something unexpected: Failed to init"),
        (Result(code=0, stdout="0, GPU-1\n"), "something unexpected: 0, GPU-1"),
    ],
)
def test_without_an_answer_nobody_knows(tmp_path: Path, answer: Result, why: str) -> None:
    result = gpu_presence.run(node(tmp_path), machine(answer), DEFAULTS)

    assert result.status is Status.NOT_CHECKED
    assert why in result.message


def test_the_same_gpu_twice_is_garbage(tmp_path: Path) -> None:
    smi = Smi("h100-8", {(7, "index"): "6"})

    assert gpu_presence.run(node(tmp_path), machine(smi), DEFAULTS).status is Status.NOT_CHECKED


def test_a_node_without_gpus_has_nothing_to_lose(tmp_path: Path) -> None:
    runner = machine()

    assert gpu_presence.run(node(tmp_path, gpus=0), runner, DEFAULTS).status is Status.NOT_CHECKED
    assert runner.commands == []


def test_nvidia_smi_is_asked_once_for_all_checks_of_a_run_also_where_it_hangs(tmp_path: Path) -> None:
    for answer in (Smi("h100-8"), HANGS):
        where, runner = node(tmp_path / str(answer is HANGS)), machine(answer)

        for check in (gpu_presence, gpu_memory, gpu_thermal):
            check.run(where, runner, DEFAULTS)

        assert len(runner.commands) == 1


def test_the_next_run_asks_anew(tmp_path: Path) -> None:
    where = node(tmp_path)
    gpu_presence.run(where, machine(), DEFAULTS)
    kept, then = where.state / "nvidia-smi.json", time.time() - smi.FRESH_SECONDS - 1
    os.utime(kept, (then, then))

    assert gpu_presence.run(where, machine(Smi("h100-8", gone=[0])), DEFAULTS).status is Status.FAIL
    then = time.time() + 3600  # the clock was set back
    os.utime(kept, (then, then))
    assert gpu_presence.run(where, machine(), DEFAULTS).status is Status.OK


def test_without_a_place_to_remember_the_checks_work(tmp_path: Path) -> None:
    where = node(tmp_path)
    where.state.write_text("not a directory")

    assert gpu_presence.run(where, machine(), DEFAULTS).status is Status.OK


def test_an_older_driver_is_asked_for_what_it_knows_and_that_is_remembered(tmp_path: Path) -> None:
    older = ["gpu_recovery_action", "fabric.state", "temperature.gpu.tlimit", "clocks_event_reasons.active"]
    smi = Smi("h100-8", {(1, "clocks_throttle_reasons.active"): "0x0000000000000080"}, unknown=older)
    where, runner = node(tmp_path), machine(smi)

    assert gpu_presence.run(where, runner, DEFAULTS).status is Status.OK
    assert "power brake" in gpu_thermal.run(where, runner, DEFAULTS).message
    asked = len(runner.commands)
    next_run(where)
    gpu_presence.run(where, runner, DEFAULTS)

    assert len(runner.commands) == asked + 1
    assert not any(name in runner.commands[-1] for name in older)


def test_an_answer_that_refuses_everything_ends(tmp_path: Path) -> None:
    runner = machine(Smi("h100-8", unknown=smi.FIELDS))

    assert gpu_presence.run(node(tmp_path), runner, DEFAULTS).status is Status.NOT_CHECKED
    assert "=index,uuid,pci.bus_id," in runner.commands[-1]


def test_no_second_nvidia_smi_is_started_while_one_hangs_in_the_kernel(tmp_path: Path) -> None:
    where, runner = node(tmp_path), machine(HANGS)
    gpu_presence.run(where, runner, DEFAULTS)
    next_run(where)
    process = where.root / "proc/4242"
    process.mkdir()
    (process / "stat").write_text("4242 (nvidia-smi) D 1 4242 4242 0 -1 4194304 0 0 0 0")

    result = gpu_presence.run(where, runner, DEFAULTS)

    assert (result.status, result.message) == (Status.NOT_CHECKED, "an earlier nvidia-smi hangs in the kernel")
    assert len(runner.commands) == 1

    (process / "stat").write_text("4242 (nvidia-smi) R 1 4242 4242 0 -1 4194304 0 0 0 0")
    next_run(where)
    runner.answers[QUERY] = Smi("h100-8")
    assert gpu_presence.run(where, runner, DEFAULTS).status is Status.OK
