"""How the checks of GPUs and InfiniBand are declared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from images.common.command import Runner
from images.health.checks import gpu_links, gpu_memory, gpu_presence, gpu_thermal, gpu_xid
from images.health.contract import Check
from images.health.registry import find_checks
from tests.unit.images.health.gpus import DEFAULTS, machine, node

ROOT = Path(__file__).parents[4]
GPU_CHECKS = [module.CHECK for module in (gpu_presence, gpu_xid, gpu_memory, gpu_links, gpu_thermal)]


def test_all_of_them_are_found() -> None:
    checks = find_checks().checks

    assert {each.name for each in GPU_CHECKS} <= set(checks)
    assert all(check.hardware == "gpu" for check in GPU_CHECKS)
    assert checks["infiniband"].hardware == "infiniband"


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.name)
def test_a_check_has_time_for_all_programs_that_it_may_start(tmp_path: Path, check: Check) -> None:
    asked = machine()
    spent = []

    def record(argv: list[str], *, timeout: float = 10.0, env: object = None) -> object:
        spent.append(timeout)
        return asked(argv, timeout=timeout)

    runner: Runner = record  # type: ignore[assignment]
    check.run(node(tmp_path), runner, DEFAULTS)

    assert spent
    assert sum(spent) < check.seconds


def test_a_node_without_such_hardware_does_not_load_their_programs() -> None:
    code = (
        "import sys; from images.health.contract import Node; from images.health.registry import find_checks; "
        "find_checks(node=Node(name='cpu-0')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    loaded = done.stdout.split()
    assert "images.health.checks.disks" in loaded
    assert not [name for name in loaded if "nvidia" in name or "gpu" in name or "infiniband" in name]
