"""No default of memory that would keep every job waiting that asks for none."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.config.messages import complaints

LARGEST = 1600 * 1024
"""MiB of the largest pool of the stack, `gpu`; the pool `cpu` has 64 GiB."""


@pytest.mark.parametrize(
    ("where", "settings", "memory"),
    [
        ("slurm.settings", {"DefMemPerCPU": LARGEST}, "1600Gi"),
        ("slurm.settings", {"defmempercpu": str(LARGEST + 1)}, "1600Gi"),
        ("partitions.small.settings", {"DefMemPerCPU": 64 * 1024}, "64Gi"),
        ("slurm.settings", {"DefMemPerCPU": "9" * 5000}, "1600Gi"),
    ],
)
def test_a_default_of_memory_that_no_node_has_for_one_cpu_is_refused(
    where: str, settings: dict[str, Any], memory: str
) -> None:
    sections = with_change(stacks.existing(), "partitions.small", {"pools": ["cpu"]})
    (complaint,) = complaints(with_change(sections, where, settings))
    assert complaint.startswith(
        f"{where}: has DefMemPerCPU {next(iter(settings.values()))} (MiB), and no node has that"
    )
    assert f"the largest has {memory}," in complaint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("slurm.settings", {"DefMemPerCPU": 64 * 1024}),
        ("slurm.settings", {"DefMemPerCPU": 0}),
        ("slurm.settings", {"DefMemPerCPU": "UNLIMITED"}),
        ("partitions.main.settings", {"DefMemPerCPU": 100 * 1024}),
    ],
)
def test_a_default_of_memory_that_some_node_has_is_taken(path: str, value: Any) -> None:
    load_config(with_change(stacks.existing(), path, value))


def test_nothing_is_said_of_memory_while_a_pool_is_wrong() -> None:
    sections = with_change(stacks.existing(), "slurm.settings", {"DefMemPerCPU": LARGEST})
    (complaint,) = complaints(with_change(sections, "worker_nodes.gpu.size", -1))
    assert complaint.startswith("worker_nodes.gpu.size: ")
