"""A slurm.conf as a change is judged by it."""

from __future__ import annotations

from cli.change.job_effects import partitions_in


def test_a_partition_line_of_a_user_s_own_writing_is_understood() -> None:
    text = "# PartitionName=x Nodes=y\nClusterName=c\npartitionname=p maxtime=60 nodes=a,b State=UP\n"
    assert partitions_in(text) == {"p": ("a", "b")}
