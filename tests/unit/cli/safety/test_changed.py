"""A slurm.conf as a change is judged by it."""

from __future__ import annotations

from cli.safety.changed import parse_conf


def test_a_time_limit_that_nobody_can_read_is_left_to_slurm() -> None:
    assert parse_conf("PartitionName=main Nodes=cpu MaxTime=1day").partitions["main"].max_time is None


def test_a_partition_line_of_a_user_s_own_writing_is_understood() -> None:
    (partition,) = parse_conf(
        "# PartitionName=x Nodes=y\nPartitionName=p Nodes=a,b maxtime=60 State=UP\n"
    ).partitions.items()
    assert (partition[0], partition[1].pools, partition[1].max_time) == ("p", ("a", "b"), 3600)
