"""The summary above a preview."""

from __future__ import annotations

from typing import Any

from cli.change.change import PropertyChange
from cli.change.effects import Effect
from cli.preview.summary import as_data, lines, summarize
from cli.preview.text import print_effects
from config import load_config
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.nebius_stack import NEBIUS


def shown(sections: dict[str, Any]) -> list[str]:
    return lines(summarize(load_config(sections)))


def test_a_stack_that_makes_its_machines_shows_all_of_them_and_what_they_hold() -> None:
    sections = with_change(NEBIUS, "mounts", {"data": {"path": "/data", "size": "1536Gi"}})
    sections["jail"]["filesystem"] = {"id": "computefilesystem-e00a"}
    *machines, volumes = shown(sections)
    assert machines == [
        "5 nodes, 16 GPUs, 296 vCPUs",
        "  system      1 node (up to 3) cpu-d3 16vcpu-64gb: 16 vCPUs",
        "  controller  1 node cpu-d3 8vcpu-32gb: 8 vCPUs",
        "  login       1 node (up to 2) cpu-d3 16vcpu-64gb: 16 vCPUs",
        "  default     2 nodes gpu-h100-sxm 8gpu-128vcpu-1600gb: 16 GPUs, 256 vCPUs",
        "GPU clusters: fabric-6",
    ]
    assert volumes == (
        "file systems: jail 2Ti NETWORK_SSD (existing, computefilesystem-e00a), controller 10Gi disk, "
        "accounting.database 10Gi disk, mounts.data 1536Gi NETWORK_SSD"
    )


def test_a_stack_on_a_cluster_that_is_there_needs_two_lines() -> None:
    assert shown(stacks.existing()) == [
        "6 nodes (4 cpu, 2 gpu, 0 plain), 320 CPUs, 16 GPUs",
        "volumes: jail 1Ti, controller 10Gi, accounting.database 10Gi",
    ]
    nodes, volumes = shown(stacks.dev())
    assert nodes == "2 nodes (2 default), 4 CPUs"
    assert volumes.startswith("volumes: jail ")


def test_scripts_get_the_same_numbers_and_the_effects() -> None:
    effect = Effect(
        action="replace",
        kind="file system",
        name="slurm-jail",
        because=(PropertyChange(path="type", old="NETWORK_SSD", new="WEKA"),),
        cost="lost",
        refused="no",
    )
    data = as_data(summarize(load_config(NEBIUS)), [effect])
    assert data["nodes"]["total"] == 5
    assert data["gpus"] == {"total": 16, "pools": {"default": 16}}
    assert data["vcpus"] == 296
    assert data["filesystems"][0] == {"name": "jail", "size_gib": 2048, "kind": "NETWORK_SSD", "existing": ""}
    assert data["effects"][0]["because"] == ({"path": "type", "old": "NETWORK_SSD", "new": "WEKA"},)
    assert data["effects"][0]["refused"] == "no"


def test_an_effect_is_printed_with_its_reason_its_cost_and_the_way_out(capsys: Any) -> None:
    because = (PropertyChange(path="type", old=None, new="WEKA"),)
    print_effects(
        [Effect(action="delete", kind="bucket", name="b[old]", because=because, cost="data are lost", refused="set x")]
    )
    printed = capsys.readouterr().out
    assert [line.strip() for line in printed.splitlines()] == [
        "- delete  bucket b[old]",
        "type: (absent) => WEKA",
        "data are lost",
        "refused: set x",
    ]
