"""How nvidia-smi is asked: once in a run, only what the driver knows, and never beside one that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from images.health.checks import gpu_links, gpu_memory, gpu_presence, gpu_thermal, gpu_xid
from images.health.contract import Status
from images.health.nvidia import smi
from tests.unit.images.health.gpus import DEFAULTS, HANGS, Smi, machine, next_run, node

ROOT = Path(__file__).parents[4]
GPU_CHECKS = [module.CHECK for module in (gpu_presence, gpu_xid, gpu_memory, gpu_links, gpu_thermal)]


def test_a_node_without_such_hardware_does_not_load_their_programs() -> None:
    code = (
        "import sys; from images.health.contract import Node; from images.health.registry import find_checks; "
        "find_checks(node=Node(name='cpu-0')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "images.health.checks.disks" in loaded
    assert not [name for name in loaded if "nvidia" in name or "gpu" in name or "infiniband" in name]


def test_it_is_asked_once_for_all_checks_of_a_run_and_anew_in_the_next(tmp_path: Path) -> None:
    for answer in (Smi("h100-8"), HANGS):
        where, runner = node(tmp_path / str(id(answer))), machine(answer)
        for check in (gpu_presence, gpu_memory, gpu_thermal):
            check.run(where, runner, DEFAULTS)
        assert len(runner.commands) == 1
    kept, now = where.state / "nvidia-smi.json", time.time()
    os.utime(kept, (now - smi.FRESH_SECONDS - 1,) * 2)
    assert gpu_presence.run(where, machine(Smi("h100-8", gone=[0])), DEFAULTS).status is Status.FAIL
    os.utime(kept, (now + 3600,) * 2)  # the clock was set back
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
