"""Memory: what Slurm may give to jobs, what a job has that asks for none, and what none can have, are one sum."""

from __future__ import annotations

import re
from typing import Any

import pytest

from config import load_config
from config.base import parse_bytes
from slurm.conf import effective_settings, partition_lines
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import with_change


def pools_apart() -> dict[str, Any]:
    """Pools of other shares than each other's, in all combinations."""
    sections = stacks.existing()
    sections["slurm"] = {"version": "24.11"}
    sections["partitions"] = {
        "main": {"pools": ["cpu", "gpu"], "default": True},
        "gpu": {"pools": ["gpu"]},
        "plain": {"pools": ["plain"]},
        "every": {"pools": ["cpu", "gpu", "plain"]},
    }
    return sections


def without_settings(sections: dict[str, Any]) -> dict[str, Any]:
    """The stack with our own defaults for all of Slurm."""
    return {name: section for name, section in sections.items() if name != "slurm"}


EXAMPLES = {
    "dev": without_settings(stacks.dev()),
    "existing": without_settings(stacks.existing_full()),
    "nebius": without_settings(stacks.nebius()),
    "full": without_settings(stacks.nebius_full()),
    "apart": pools_apart(),
}


def real_memory(sections: dict[str, Any]) -> dict[str, int]:
    """MiB that each pool's nodes register with."""
    pools = load_config(sections).worker_nodes
    found = {name: re.search(r"RealMemory=(\d+)", node_conf(name, pool)) for name, pool in pools.items()}
    return {name: int(match[1]) for name, match in found.items() if match}


def defaults(sections: dict[str, Any]) -> dict[str, int]:
    """MiB for each CPU of a job that asks for none, by partition."""
    config = load_config(sections)
    everywhere = effective_settings(config)["DefMemPerCPU"]
    return {line.name: int(line.option("DefMemPerCPU") or everywhere) for line in partition_lines(config)}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_node_holds_a_job_of_one_cpu_on_each_of_its_cpus(example: str) -> None:
    sections = EXAMPLES[example]
    config, memory = load_config(sections), real_memory(sections)
    for line in partition_lines(config):
        share = defaults(sections)[line.name]
        assert all(share * config.worker_nodes[pool].resources.cpus <= memory[pool] for pool in line.node_sets)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_most_that_a_job_can_ask_for_is_what_the_largest_node_has(example: str) -> None:
    sections = EXAMPLES[example]
    config, memory = load_config(sections), real_memory(sections)
    assert int(effective_settings(config)["MaxMemPerNode"]) == max(memory.values())
    assert not [line for line in partition_lines(config) if line.option("MaxMemPerNode")]
    for name, pool in config.worker_nodes.items():
        assert memory[name] * 2**20 <= parse_bytes(pool.resources.memory) - 128 * 2**20


def test_a_partition_whose_pools_have_more_for_a_cpu_says_so() -> None:
    memory = real_memory(pools_apart())
    assert defaults(pools_apart()) == {
        "main": memory["cpu"] // 16,
        "gpu": memory["gpu"] // 128,
        "plain": memory["plain"] // 2,
        "every": memory["plain"] // 2,
    }
    lines = {line.name: str(line) for line in partition_lines(load_config(pools_apart()))}
    assert [name for name, line in lines.items() if "DefMemPerCPU" in line] == ["main", "gpu"], "the others as written"


@pytest.mark.parametrize("key", ["DefMemPerCPU", "defmempernode", "DefMemPerGPU"])
def test_what_the_stack_file_says_of_it_stands_alone(key: str) -> None:
    everywhere = partition_lines(load_config(with_change(pools_apart(), "slurm.settings", {key: 300})))
    assert not [line for line in everywhere if line.option("DefMemPerCPU")]
    here = partition_lines(load_config(with_change(pools_apart(), "partitions.gpu.settings", {key: 300})))
    found = {line.name: re.findall(r"(?i)defmem\w+=\d+", str(line)) for line in here}
    assert found["gpu"] == [f"{key}=300"]
    assert found["main"] == [f"DefMemPerCPU={real_memory(pools_apart())['cpu'] // 16}"]
