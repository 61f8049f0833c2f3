"""When a stack gets a switch tree, and what Slurm is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from config.sections.machines import GpuCluster
from slurm.conf import LABELS_FILE, TREE, render
from tests import stacks
from tests.stacks import with_change


def _files(sections: dict[str, Any]) -> dict[str, str]:
    return render(load_config(sections))


def test_without_a_fabric_slurms_files_say_nothing_of_topology() -> None:
    files = _files(stacks.existing())
    assert LABELS_FILE not in files
    assert "topology" not in "".join(files.values()).lower()


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
