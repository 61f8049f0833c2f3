"""Temperatures and slowed-down GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_thermal
from images.health.contract import Status, Thresholds
from tests.unit.images.health.gpus import ABSENT, DEFAULTS, GARBAGE, HANGS, Smi, machine, next_run, node, wait

REASONS = "clocks_event_reasons.active"


def test_cool_gpus_are_well_whatever_they_tell(tmp_path: Path) -> None:
    for name, gpus in [("h100-8", 8), ("rtx4090-2", 2), ("t4-1", 1)]:
        result = gpu_thermal.run(node(tmp_path / name, gpus), machine(Smi(name)), DEFAULTS)

        assert (result.status, result.message) == (Status.OK, "")
        assert result.values['gpu_temperature_celsius{gpu="0"}'] in (30, 34, 36)


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ("0x0000000000000008", "slowed down: hardware slowdown (temperature or power)"),
        ("0x0000000000000048", "slowed down: too hot (hardware)"),
        ("0x0000000000000088", "slowed down: power brake (the machine's power supply asks for it)"),
    ],
)
def test_slow_hardware_is_a_warning_and_in_the_next_run_a_fault(tmp_path: Path, bits: str, message: str) -> None:
    where, runner = node(tmp_path), machine(Smi("h100-8", {(2, REASONS): bits}))

    first = gpu_thermal.run(where, runner, DEFAULTS)
    wait(where, "gpu-thermal", 1)
    again_by_hand = gpu_thermal.run(where, runner, DEFAULTS)
    wait(where, "gpu-thermal", 29)
    second = gpu_thermal.run(where, runner, DEFAULTS)

    assert (first.status, first.fault, first.message) == (Status.WARN, "hardware", f"GPU 2: {message}")
    assert again_by_hand.status is Status.WARN
    assert (second.status, second.fault, second.message) == (Status.FAIL, "hardware", f"GPU 2: {message}")


def test_slow_moments_that_are_far_apart_do_not_add_up(tmp_path: Path) -> None:
    where = node(tmp_path)
    slow, well = machine(Smi("h100-8", {(2, REASONS): "0x0000000000000008"})), machine()

    for runner, expected in [(slow, Status.WARN), (well, Status.OK), (slow, Status.WARN)]:
        next_run(where)
        assert gpu_thermal.run(where, runner, DEFAULTS).status is expected
        wait(where, "gpu-thermal", 30)
    wait(where, "gpu-thermal", 3600)  # nobody looked
    assert gpu_thermal.run(where, slow, DEFAULTS).status is Status.WARN


def test_power_caps_and_idle_clocks_are_no_fault(tmp_path: Path) -> None:
    smi = Smi("h100-8", {(0, REASONS): "0x0000000000000004", (1, REASONS): "0x0000000000000001"})

    assert gpu_thermal.run(node(tmp_path), machine(smi), DEFAULTS).status is Status.OK


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature.gpu.tlimit", "-1", "at its temperature limit"),
        ("temperature.memory", "97", "memory at or above 95 °C"),
        (REASONS, "0x0000000000000020", "the driver lowers the clocks because of the temperature"),
    ],
)
def test_a_warm_gpu_is_a_warning(tmp_path: Path, field: str, value: str, message: str) -> None:
    result = gpu_thermal.run(node(tmp_path), machine(Smi("h100-8", {(5, field): value})), DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.WARN, "hardware", f"GPU 5: {message}")


def test_a_gpu_that_tells_no_limit_has_the_sites(tmp_path: Path) -> None:
    runner = machine(Smi("rtx4090-2", {(1, "temperature.gpu"): "86"}))

    assert gpu_thermal.run(node(tmp_path, gpus=2), runner, DEFAULTS).status is Status.OK
    result = gpu_thermal.run(node(tmp_path, gpus=2), runner, Thresholds({"gpu-thermal": {"warn_celsius": 85}}))
    assert (result.status, result.message) == (Status.WARN, "GPU 1: at or above 85 °C")


def test_a_gpu_that_tells_nothing_is_not_checked(tmp_path: Path) -> None:
    silent = dict.fromkeys([(0, "temperature.gpu"), (0, "temperature.gpu.tlimit"), (0, REASONS)], "[N/A]")

    result = gpu_thermal.run(node(tmp_path), machine(Smi("h100-8", silent)), DEFAULTS)

    assert (result.status, result.message) == (
        Status.NOT_CHECKED,
        "GPU 0: tells neither temperature nor reasons for slow clocks",
    )


@pytest.mark.parametrize("value", ["[Unknown Error]", "0xzz", "hot"])
def test_a_field_that_holds_no_number_is_not_checked(tmp_path: Path, value: str) -> None:
    assert (
        gpu_thermal.run(node(tmp_path), machine(Smi("h100-8", {(0, REASONS): value})), DEFAULTS).status
        is Status.NOT_CHECKED
    )


@pytest.mark.parametrize("answer", [HANGS, ABSENT, GARBAGE], ids=["hangs", "absent", "garbage"])
def test_without_an_answer_nobody_knows(tmp_path: Path, answer: Result) -> None:
    assert gpu_thermal.run(node(tmp_path), machine(answer), DEFAULTS).status is Status.NOT_CHECKED
