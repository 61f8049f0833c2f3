"""Partitions that left the stack: what is kept of them, until when, and that the stack does not notice."""

from __future__ import annotations

import pytest

from images.common.slurm_conf import (
    block_of,
    drop_partitions,
    keep_partitions,
    without_block,
)
from images.controller.configuration import config_hash, stack_part, version_of
from tests.unit.images.leaving_files import BOTH, GPU_NODES, HEAD, MAIN, ONE

BLOCKS = {
    "nodes that the stack still declares are declared once": (
        MAIN + "PartitionName=second Nodes=a State=UP\n",
        "PartitionName=second Nodes=a State=DRAIN\n",
    ),
    "one over several pools keeps those that leave": (
        GPU_NODES + MAIN + "PartitionName=all Nodes=a,gpu State=UP\n",
        "NodeSet=gpu Feature=gpu\nPartitionName=all Nodes=a,gpu State=DRAIN\n",
    ),
    "a pool may be called default": (
        "NodeSet=default Feature=default\nPartitionName=old Nodes=default State=UP\n",
        "NodeSet=default Feature=default\nPartitionName=old Nodes=default State=DRAIN\n",
    ),
    "what may leave together with it is not named by it": (
        (
            "PartitionName=old Default=YES Alternate=other QOS=small AllowQos=a,b DenyQos=a AllowGroups=g "
            'ALLOWACCOUNTS="a" Nodes=a State=UP MaxTime=5\n'
        ),
        "PartitionName=old Nodes=a MaxTime=5 State=DRAIN\n",
    ),
    "jobs that could not start before do not start now": (
        "PartitionName=old Nodes=a State=down\nPartitionName=older Nodes=a State=INACTIVE\n",
        "PartitionName=old Nodes=a State=INACTIVE\nPartitionName=older Nodes=a State=INACTIVE\n",
    ),
    "keys are read as Slurm reads them": (
        (
            "# PartitionName=comment Nodes=a\npartitionname=old  nodes = gpu state=up # closed soon\n"
            "nodeset=gpu feature=gpu\nPartitionName=DEFAULT MaxTime=5\n  PartitionName=long \\\n Nodes=a\n"
        ),
        "NodeSet=gpu feature=gpu\nPartitionName=old nodes=gpu State=DRAIN\nPartitionName=long Nodes=a State=DRAIN\n",
    ),
}


@pytest.mark.parametrize(("before", "kept"), BLOCKS.values(), ids=BLOCKS)
def test_what_is_kept_of_a_partition(before: str, kept: str) -> None:
    files = {"slurm.conf": HEAD + "PARTITIONNAME=main Nodes=a\n"}
    assert block_of(keep_partitions(files, {"slurm.conf": HEAD + before})) == kept


@pytest.mark.parametrize(
    ("option", "kept"),
    [("", " DefMemPerCPU=100"), (" DefMemPerCPU=7", " DefMemPerCPU=7"), (" defmempernode=7", " defmempernode=7")],
)
def test_jobs_that_wait_keep_the_memory_that_they_get_unasked(option: str, kept: str) -> None:
    before = {"slurm.conf": f"{HEAD}DefMemPerCPU=100\nPartitionName=old Nodes=a{option}\n"}
    larger = {"slurm.conf": f"{HEAD}DefMemPerCPU=5000\n{MAIN}"}

    block = block_of(keep_partitions(larger, keep_partitions(larger, before)))

    assert block == f"PartitionName=old Nodes=a{kept} State=DRAIN\n"


def test_a_partition_that_is_kept_stays_over_further_changes_until_it_is_dropped() -> None:
    kept = keep_partitions(ONE, BOTH)
    changed = {**ONE, "slurm.conf": ONE["slurm.conf"] + "MaxJobCount=5\n"}

    again = keep_partitions(changed, kept)

    assert block_of(again) == block_of(kept)
    assert drop_partitions(again, ["gpu"]) == changed


def test_the_stack_knows_a_version_by_its_own_files_whatever_is_kept() -> None:
    kept = keep_partitions(ONE, BOTH)

    assert without_block(kept) == ONE
    assert stack_part(version_of(kept)) == config_hash(ONE)
    assert version_of(kept) != version_of(ONE) == config_hash(ONE)
