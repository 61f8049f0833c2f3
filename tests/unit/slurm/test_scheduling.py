"""Default times, memory and topology, as slurm.conf has them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from config import load_config
from config.sections.machines import GpuCluster
from slurm.conf import LABELS_FILE, TREE, effective_settings, partition_lines, render
from slurm.sizing import node_conf
from tests import stacks
from tests.stacks import with_change


def settings(**sections: Any) -> dict[str, str]:
    return effective_settings(load_config(stacks.existing() | sections))


def partition(option: str, **sections: Any) -> dict[str, str]:
    """Value of an option by partition, empty where it is not set."""
    return {line.name: line.option(option) for line in partition_lines(load_config(stacks.existing() | sections))}


def with_partition(**options: Any) -> dict[str, Any]:
    """The two partitions, with more options for `main`."""
    partitions = stacks.existing()["partitions"]
    return {**partitions, "main": {**partitions["main"], **options}}


def test_the_common_default_time_is_for_partitions_without_one() -> None:
    sections = {"job_submit": {"default_time": "2:00:00"}, "partitions": with_partition(default_time="10")}
    assert partition("DefaultTime", **sections) == {"main": "10", "gpu": "2:00:00"}
    assert partition("DefaultTime") == {"main": "", "gpu": ""}


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


def test_a_node_holds_a_job_of_one_cpu_on_each_of_its_cpus() -> None:
    sections = pools_apart()
    config, memory = load_config(sections), real_memory(sections)
    for line in partition_lines(config):
        share = defaults(sections)[line.name]
        assert all(share * config.worker_nodes[pool].resources.cpus <= memory[pool] for pool in line.node_sets)


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


def test_what_the_stack_file_says_of_it_stands_alone() -> None:
    key = "defmempernode"
    everywhere = partition_lines(load_config(with_change(pools_apart(), "slurm.settings", {key: 300})))
    assert not [line for line in everywhere if line.option("DefMemPerCPU")]
    here = partition_lines(load_config(with_change(pools_apart(), "partitions.gpu.settings", {key: 300})))
    found = {line.name: re.findall(r"(?i)defmem\w+=\d+", str(line)) for line in here}
    assert found["gpu"] == [f"{key}=300"]
    assert found["main"] == [f"DefMemPerCPU={real_memory(pools_apart())['cpu'] // 16}"]


def _files(sections: dict[str, Any]) -> dict[str, str]:
    return render(load_config(sections))


def test_a_tree_that_is_asked_for_names_its_labels_for_the_agent() -> None:
    files = _files(with_change(stacks.existing(), "topology", {"plugin": "tree", "labels": ["example/core", "rack"]}))
    assert f"TopologyPlugin={TREE}\nTopologyParam=SwitchAsNodeRank\n" in files["slurm.conf"]
    assert files[LABELS_FILE] == "example/core\nrack\n"


def test_a_pool_on_a_fabric_brings_the_tree() -> None:
    config = load_config(stacks.dev())
    fabric = GpuCluster(infiniband_fabric="fabric-6")
    pool = config.worker_nodes["default"].model_copy(update={"gpu_cluster": fabric})
    with_fabric = config.model_copy(update={"worker_nodes": {"default": pool}})
    assert f"TopologyPlugin={TREE}\n" in render(with_fabric)["slurm.conf"]
    without = with_fabric.model_copy(update={"topology": config.topology.model_copy(update={"plugin": "none"})})
    assert LABELS_FILE not in render(without)


@pytest.mark.parametrize(
    ("plugin", "setting", "made"), [("none", "topology/tree", True), ("tree", "topology/flat", False)]
)
def test_a_setting_of_the_users_own_wins(plugin: str, setting: str, *, made: bool) -> None:
    sections = with_change(stacks.existing(), "topology.plugin", plugin)
    files = _files(with_change(sections, "slurm.settings.topologyplugin", setting))
    assert f"TopologyPlugin={setting}\n" in files["slurm.conf"].replace("topologyplugin", "TopologyPlugin")
    assert (LABELS_FILE in files) is made
