"""How the checks of GPUs and InfiniBand are declared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from images.common.command import Runner
from images.health.checks import gpu, infiniband
from images.health.contract import Check, Status
from images.health.nvidia import smi, xid
from images.health.registry import find_checks
from tests.unit.images.health.gpus import DEFAULTS, machine, node
from tests.unit.images.health.test_infiniband import Machine

ROOT = Path(__file__).parents[4]
GPU_CHECKS = [gpu.PRESENCE, gpu.XID, gpu.MEMORY, gpu.LINKS, gpu.THERMAL]


def test_all_of_them_are_found_by_their_hardware() -> None:
    checks = find_checks().checks

    assert {name for name, check in checks.items() if check.hardware == "gpu"} == {each.name for each in GPU_CHECKS}
    assert [name for name, check in checks.items() if check.hardware == "infiniband"] == ["infiniband"]


@pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.name)
def test_a_declaration_names_its_program(tmp_path: Path, check: Check) -> None:
    result = check.run(node(tmp_path), machine(), DEFAULTS)

    assert (result.status, result.message) == (Status.OK, "")


def test_the_declaration_of_infiniband_names_its_program(tmp_path: Path) -> None:
    where = Machine(tmp_path)

    assert infiniband.CHECK.run(where.node, machine(), DEFAULTS).status is Status.OK


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


def test_the_longest_waits_are_known() -> None:
    assert (smi.SECONDS, xid.SECONDS) == (8.0, 4.0)


def test_a_node_without_gpus_does_not_load_their_programs() -> None:
    code = "import sys; from images.health.registry import find_checks; find_checks(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "images.health.checks.gpu" in done.stdout.split()
    assert not [name for name in done.stdout.split() if name.startswith("images.health.nvidia")]
    assert "images.health.infiniband" not in done.stdout.split()
