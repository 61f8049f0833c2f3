"""How nvidia-smi is asked: once in a run, only what the driver knows, and never beside one that hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from images.common.command import Result, Runner
from images.health.checks import gpu_links, gpu_memory, gpu_presence, gpu_thermal, gpu_xid
from images.health.contract import Check, Status
from images.health.nvidia import smi
from images.health.registry import find_checks
from images.health.tools import CANNOT_RUN
from tests.unit.images.health.gpus import DEFAULTS, HANGS, Smi, machine, next_run, node

GPU_CHECKS = [module.CHECK for module in (gpu_presence, gpu_xid, gpu_memory, gpu_links, gpu_thermal)]


def test_all_of_them_are_found() -> None:
    checks = find_checks().checks
    assert {each.name for each in GPU_CHECKS} <= set(checks)
    assert all(check.hardware == "gpu" for check in GPU_CHECKS)
    assert checks["infiniband"].hardware == "infiniband"


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.name)
def test_a_check_has_time_for_all_programs_that_it_may_start(tmp_path: Path, check: Check) -> None:
    asked, spent = machine(), list[float]()

    def record(argv: list[str], *, timeout: float = 10.0, env: object = None) -> object:
        spent.append(timeout)
        return asked(argv, timeout=timeout)

    runner: Runner = record  # type: ignore[assignment]
    check.run(node(tmp_path), runner, DEFAULTS)
    assert spent
    assert sum(spent) < check.seconds


@pytest.mark.parametrize("answer", [Smi("h100-8"), HANGS], ids=["answers", "hangs"])
def test_it_is_asked_once_for_all_checks_of_a_run(tmp_path: Path, answer: Smi) -> None:
    where, runner = node(tmp_path), machine(answer)
    for check in (gpu_presence, gpu_memory, gpu_thermal):
        check.run(where, runner, DEFAULTS)
    assert len(runner.commands) == 1


def test_the_next_run_asks_anew(tmp_path: Path) -> None:
    where = node(tmp_path)
    gpu_presence.run(where, machine(), DEFAULTS)
    kept = where.state / "nvidia-smi.json"
    now = time.time()
    os.utime(kept, (now - smi.FRESH_SECONDS - 1,) * 2)
    assert gpu_presence.run(where, machine(Smi("h100-8", gone=[0])), DEFAULTS).status is Status.FAIL
    os.utime(kept, (now + 3600,) * 2)  # the clock was set back
    assert gpu_presence.run(where, machine(), DEFAULTS).status is Status.OK


def test_without_a_place_to_remember_the_checks_work(tmp_path: Path) -> None:
    where = node(tmp_path)
    where.state.write_text("not a directory")
    assert gpu_presence.run(where, machine(), DEFAULTS).status is Status.OK


def test_an_older_driver_is_asked_for_what_it_knows_and_that_is_remembered(tmp_path: Path) -> None:
    older = ["gpu_recovery_action", "fabric.state", "temperature.gpu.tlimit", "clocks_event_reasons.active"]
    slow = Smi("h100-8", {(1, "clocks_throttle_reasons.active"): "0x0000000000000080"}, unknown=older)
    where, runner = node(tmp_path), machine(slow)
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


def test_while_one_hangs_in_the_kernel_nothing_is_taken_for_an_answer(tmp_path: Path) -> None:
    hangs = Result(code=CANNOT_RUN, stderr="an earlier nvidia-smi hangs in the kernel")
    for check in (gpu_presence, gpu_memory, gpu_thermal, gpu_links):
        result = check.run(node(tmp_path), machine(hangs, remapped=hangs), DEFAULTS)
        assert (result.status, result.message) == (Status.NOT_CHECKED, hangs.stderr)
