"""PCIe and NVLink."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.command import Result
from images.health.checks import gpu_links
from images.health.contract import Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.gpus import (
    ABSENT,
    DEFAULTS,
    ERRORS,
    GARBAGE,
    HANGS,
    STATUS,
    Smi,
    machine,
    node,
    text,
    wait,
)

WIDTH, GENERATION = "pcie.link.width.current", "pcie.link.gen.gpucurrent"


def rtx() -> FakeRunner:
    return machine(Smi("rtx4090-2"), status=text("nvidia/nvlink-rtx4090-2.txt"))


def test_full_links_are_well(tmp_path: Path) -> None:
    result = gpu_links.run(node(tmp_path), machine(), DEFAULTS)

    assert (result.status, result.message) == (Status.OK, "")
    assert result.values['gpu_nvlinks_active{gpu="7"}'] == 18
    assert result.values['gpu_nvlink_errors{gpu="2",kind="CRC Errors"}'] == 17
    assert result.values['gpu_pcie_lanes{gpu="0"}'] == 16


def test_gpus_without_nvlink_are_well_and_have_no_counters_to_ask_for(tmp_path: Path) -> None:
    runner = rtx()

    result = gpu_links.run(node(tmp_path, gpus=2), runner, DEFAULTS)

    assert (result.status, result.message) == (Status.OK, "")
    assert not any(name.startswith("gpu_nvlink") for name in result.values)
    assert not runner.ran(ERRORS)


def test_cards_without_bridges_are_well(tmp_path: Path) -> None:
    runner = machine(Smi("rtx4090-2"), status=text("nvidia/nvlink-a100-pcie-2.txt"))

    assert gpu_links.run(node(tmp_path, gpus=2), runner, DEFAULTS).status is Status.OK


def test_a_single_gpu_is_not_asked_for_nvlinks(tmp_path: Path) -> None:
    runner = machine(Smi("t4-1"))

    assert gpu_links.run(node(tmp_path, gpus=1), runner, DEFAULTS).status is Status.OK
    assert not runner.ran(STATUS)


def test_a_narrow_pcie_link_is_a_warning_and_in_the_next_run_a_fault(tmp_path: Path) -> None:
    where, runner = node(tmp_path), machine(Smi("h100-8", {(1, WIDTH): "8"}))

    first = gpu_links.run(where, runner, DEFAULTS)
    wait(where, "gpu-links", 30)
    second = gpu_links.run(where, runner, DEFAULTS)

    assert (first.status, first.fault, first.message) == (Status.WARN, "hardware", "GPU 1: PCIe has 8 of 16 lanes")
    assert (second.status, second.fault, second.message) == (Status.FAIL, "hardware", "GPU 1: PCIe has 8 of 16 lanes")


def test_a_slow_pcie_generation_is_a_warning(tmp_path: Path) -> None:
    result = gpu_links.run(node(tmp_path), machine(Smi("h100-8", {(1, GENERATION): "3"})), DEFAULTS)

    assert (result.status, result.message) == (Status.WARN, "GPU 1: PCIe runs at generation 3 of 5")


def test_a_gpu_that_saves_power_may_have_a_slow_link(tmp_path: Path) -> None:
    where, runner = node(tmp_path), machine(Smi("h100-8", {(1, WIDTH): "1", (1, GENERATION): "1", (1, "pstate"): "P8"}))

    for _ in range(3):
        assert gpu_links.run(where, runner, DEFAULTS).status is Status.OK
        wait(where, "gpu-links", 30)


def test_a_site_may_name_the_lanes_that_its_machines_have(tmp_path: Path) -> None:
    where, runner = node(tmp_path), machine(Smi("h100-8", {(1, WIDTH): "8"}))

    for _ in range(2):
        assert gpu_links.run(where, runner, Thresholds({"gpu-links": {"pcie_width": 8}})).status is Status.OK
        wait(where, "gpu-links", 30)


@pytest.mark.parametrize(("state", "status"), [("state  Completed", "ok"), ("In Progress", "fail"), ("N/A", "ok")])
def test_a_gpu_outside_the_nvlink_fabric_is_a_fault_of_the_node(tmp_path: Path, state: str, status: str) -> None:
    result = gpu_links.run(node(tmp_path), machine(Smi("h100-8", {(0, "fabric.state"): state})), DEFAULTS)

    assert result.status is Status(status)
    assert result.fault == ("node" if status == "fail" else None)


def test_a_single_gpu_can_do_without_the_nvlink_fabric(tmp_path: Path) -> None:
    runner = machine(Smi("t4-1", {(0, "fabric.state"): "In Progress"}))

    assert gpu_links.run(node(tmp_path, gpus=1), runner, DEFAULTS).status is Status.WARN


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        ("nvlink-h100-8-one-link-off", "GPU 5: 17 of 18 NVLinks are active"),
        ("nvlink-h100-8-one-gpu-dark", "GPU 4: 0 of 18 NVLinks are active"),
    ],
)
def test_a_gpu_with_fewer_nvlinks_than_the_others_is_a_fault(tmp_path: Path, recording: str, message: str) -> None:
    result = gpu_links.run(node(tmp_path), machine(status=text(f"nvidia/{recording}.txt")), DEFAULTS)

    assert (result.status, result.fault, result.message) == (Status.FAIL, "hardware", message)


def test_the_number_of_nvlinks_can_be_set(tmp_path: Path) -> None:
    dark = machine(status=text("nvidia/nvlink-h100-8-one-gpu-dark.txt"))

    assert gpu_links.run(node(tmp_path), dark, Thresholds({"gpu-links": {"nvlinks": 0}})).status is Status.OK
    result = gpu_links.run(node(tmp_path), machine(), Thresholds({"gpu-links": {"nvlinks": 20}}))
    assert result.message.startswith("GPU 0: 18 of 20 NVLinks are active; GPU 1: ")


def test_replays_and_recoveries_of_a_link_are_a_warning(tmp_path: Path) -> None:
    runner = machine(errors=text("nvidia/nvlink-errors-h100-8-replays.txt"))

    result = gpu_links.run(node(tmp_path), runner, DEFAULTS)

    assert (result.status, result.fault) == (Status.WARN, "hardware")
    assert result.message == "GPU 6: NVLink Replay Errors: 143, NVLink Recovery Errors: 3"


@pytest.mark.parametrize("what", ["status", "errors"])
@pytest.mark.parametrize("answer", [HANGS, ABSENT, GARBAGE, Result(code=3), Result(code=0)], ids=repr)
def test_nvlinks_that_nobody_tells_are_not_checked(tmp_path: Path, what: str, answer: Result) -> None:
    result = gpu_links.run(node(tmp_path), machine(**{what: answer}), DEFAULTS)

    assert result.status is Status.NOT_CHECKED
    assert "nvidia-smi" in result.message


def test_counters_of_a_call_that_failed_are_not_believed(tmp_path: Path) -> None:
    partly = Result(code=15, stdout=text("nvidia/nvlink-errors-h100-8.txt").stdout)

    assert gpu_links.run(node(tmp_path), machine(errors=partly), DEFAULTS).status is Status.NOT_CHECKED


def test_an_unknown_state_of_a_link_is_not_checked(tmp_path: Path) -> None:
    odd = Result(code=0, stdout="GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: sleepy\n")

    assert gpu_links.run(node(tmp_path), machine(status=odd), DEFAULTS).status is Status.NOT_CHECKED


def test_a_fault_of_pcie_is_told_though_nvlink_hangs(tmp_path: Path) -> None:
    where, runner = node(tmp_path), machine(Smi("h100-8", {(1, WIDTH): "8"}), status=HANGS)

    gpu_links.run(where, runner, DEFAULTS)
    wait(where, "gpu-links", 30)
    assert gpu_links.run(where, runner, DEFAULTS).status is Status.FAIL


@pytest.mark.parametrize("answer", [HANGS, ABSENT, GARBAGE], ids=["hangs", "absent", "garbage"])
def test_without_an_answer_nobody_knows(tmp_path: Path, answer: Result) -> None:
    assert gpu_links.run(node(tmp_path), machine(answer), DEFAULTS).status is Status.NOT_CHECKED


def test_a_gpu_that_tells_nothing_is_not_checked(tmp_path: Path) -> None:
    smi = Smi("t4-1", {(0, WIDTH): "[N/A]"})

    assert gpu_links.run(node(tmp_path, gpus=1), machine(smi), DEFAULTS).status is Status.NOT_CHECKED
