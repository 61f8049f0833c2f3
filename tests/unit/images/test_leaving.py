"""Partitions that left the stack: what is kept of them, until when, and that the stack does not notice."""

from __future__ import annotations

import pytest

from images.common.slurm_conf import (
    BLOCK,
    block_of,
    drop_partitions,
    keep_partitions,
    leaving_partitions,
    without_block,
)
from images.controller.configuration import config_hash, stack_part, version_of
from tests.unit.images.leaving_files import BOTH, GPU_NODES, HEAD, MAIN, ONE


def test_a_partition_that_leaves_stays_closed_with_the_nodes_that_only_it_needs() -> None:
    kept = keep_partitions(ONE, BOTH)

    assert kept == {
        "slurm.conf": HEAD + MAIN + BLOCK
        + "NodeSet=gpu Feature=gpu\nPartitionName=gpu Nodes=gpu MaxTime=1:00:00 State=DRAIN\n",
        "cgroup.conf": "x\n",
    }  # fmt: skip
    assert leaving_partitions(kept) == ("gpu",)


def test_nodes_that_the_stack_still_declares_are_declared_once() -> None:
    same_nodes = {"slurm.conf": HEAD + MAIN + "PartitionName=second Nodes=a State=UP\n"}

    assert block_of(keep_partitions(ONE, same_nodes)) == "PartitionName=second Nodes=a State=DRAIN\n"


def test_a_partition_over_several_pools_keeps_those_that_leave() -> None:
    before = {"slurm.conf": HEAD + GPU_NODES + MAIN + "PartitionName=all Nodes=a,gpu State=UP\n"}

    assert block_of(keep_partitions(ONE, before)) == (
        "NodeSet=gpu Feature=gpu\nPartitionName=all Nodes=a,gpu State=DRAIN\n"
    )


def test_what_may_leave_together_with_a_partition_is_not_named_by_it() -> None:
    options = 'Default=YES Alternate=other QOS=small AllowQos=a,b DenyQos=a AllowGroups=g ALLOWACCOUNTS="a"'
    before = {"slurm.conf": f"{HEAD}PartitionName=old {options} Nodes=a State=UP MaxTime=5\n"}
    assert block_of(keep_partitions(ONE, before)) == "PartitionName=old Nodes=a MaxTime=5 State=DRAIN\n"


@pytest.mark.parametrize(("state", "closed"), [("UP", "DRAIN"), ("down", "INACTIVE"), ("INACTIVE", "INACTIVE")])
def test_jobs_that_could_not_start_before_do_not_start_now(state: str, closed: str) -> None:
    before = {"slurm.conf": f"{HEAD}PartitionName=old Nodes=a State={state}\n"}

    assert block_of(keep_partitions(ONE, before)) == f"PartitionName=old Nodes=a State={closed}\n"


@pytest.mark.parametrize(
    ("option", "kept"),
    [("", " DefMemPerCPU=100"), (" DefMemPerCPU=7", " DefMemPerCPU=7"), (" defmempernode=7", " defmempernode=7")],
)
def test_jobs_that_wait_keep_the_memory_that_they_get_unasked(option: str, kept: str) -> None:
    before = {"slurm.conf": f"{HEAD}DefMemPerCPU=100\nPartitionName=old Nodes=a{option}\n"}
    larger = {"slurm.conf": f"{HEAD}DefMemPerCPU=5000\n{MAIN}"}

    block = block_of(keep_partitions(larger, keep_partitions(larger, before)))

    assert block == f"PartitionName=old Nodes=a{kept} State=DRAIN\n"


def test_keys_are_read_as_slurm_reads_them() -> None:
    before = {
        "slurm.conf": HEAD
        + "# PartitionName=comment Nodes=a\npartitionname=old  nodes = gpu state=up # closed soon\n"
        + "nodeset=gpu feature=gpu\nPartitionName=DEFAULT MaxTime=5\n  PartitionName=long \\\n Nodes=a\n"
    }
    files = {"slurm.conf": HEAD + "PARTITIONNAME=main Nodes=a\n"}

    assert block_of(keep_partitions(files, before)) == (
        "NodeSet=gpu feature=gpu\nPartitionName=old nodes=gpu State=DRAIN\nPartitionName=long Nodes=a State=DRAIN\n"
    )


def test_a_partition_that_is_kept_stays_over_further_changes_until_it_is_dropped() -> None:
    kept = keep_partitions(ONE, BOTH)
    changed = {**ONE, "slurm.conf": ONE["slurm.conf"] + "MaxJobCount=5\n"}

    again = keep_partitions(changed, kept)

    assert block_of(again) == block_of(kept)
    assert drop_partitions(again, ["gpu"]) == changed


def test_a_partition_that_comes_back_is_the_stacks_again() -> None:
    assert keep_partitions(BOTH, keep_partitions(ONE, BOTH)) == BOTH


def test_the_stack_knows_a_version_by_its_own_files_whatever_is_kept() -> None:
    kept = keep_partitions(ONE, BOTH)

    assert without_block(kept) == ONE
    assert stack_part(version_of(kept)) == config_hash(ONE)
    assert version_of(kept) != version_of(ONE) == config_hash(ONE)
