"""Partitions that have left the stack and stay in slurm.conf, closed for new jobs, until their last job has gone.

A slurmctld that no longer finds the partition of a job in its files ends the job with NODE_FAIL, a pending one as well
(measured with 24.11 and 26.05). So what the version in force has and a new one lacks goes into a block at the end of
the new slurm.conf. The block is the only memory of it: it is on disk with the version, so that restarts of the agent,
of slurmctld and of the pod change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from images.common.slurm_conf import SLURM_CONF, Line, lines_of, setting

BLOCK: Final = "\n# Left the stack: closed for new jobs, and taken out by config-agent when the last job has gone.\n"
"""What the block begins with. It reaches to the end of the file."""

_DROPPED: Final = frozenset(
    key.lower()
    for key in (
        "Default", "State", "QOS", "AllowQos", "DenyQos", "AllowAccounts", "DenyAccounts", "AllowGroups", "Alternate",
        "TRESBillingWeights",
    )
)  # fmt: skip
"""Options that a closed partition has no use for, or that name what may leave together with it: slurmctld ends
with a partition whose weights name a GRES that no node has any more (measured)."""

_DEFAULT_MEMORY: Final = "DefMemPerCPU"

_STOPPED: Final = frozenset({"DOWN", "INACTIVE"})
"""States in which queued jobs do not start. Only INACTIVE refuses new ones as well."""


def without_block(files: Mapping[str, str]) -> dict[str, str]:
    """The files as the stack says them."""
    return {name: content.partition(BLOCK)[0] if name == SLURM_CONF else content for name, content in files.items()}


def block_of(files: Mapping[str, str]) -> str:
    """What was added to slurm.conf; empty where nothing leaves."""
    return files.get(SLURM_CONF, "").partition(BLOCK)[2]


def leaving_partitions(files: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the partitions that are kept only for their jobs."""
    return tuple(lines_of(block_of(files), "PartitionName"))


def keep_partitions(files: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """The stack's new files with what the version in force has and they lack, closed for new jobs."""
    return _with_block(files, before, gone=())


def drop_partitions(files: Mapping[str, str], gone: Collection[str]) -> dict[str, str]:
    """The files without these partitions, which were kept."""
    return _with_block(files, files, gone=gone)


def _with_block(files: Mapping[str, str], before: Mapping[str, str], *, gone: Collection[str]) -> dict[str, str]:
    stack = without_block(files)
    if SLURM_CONF not in stack:
        return stack
    had, has = before.get(SLURM_CONF, ""), stack[SLURM_CONF]
    present = {*lines_of(has, "PartitionName"), *gone}
    memory = setting(before, _DEFAULT_MEMORY)
    partitions = [_closed(line, memory) for name, line in lines_of(had, "PartitionName").items() if name not in present]
    if not partitions:
        return stack
    used = {name for partition in partitions for name in partition.option("Nodes").split(",")}
    used -= lines_of(has, "NodeSet").keys()
    node_sets = [line for name, line in lines_of(had, "NodeSet").items() if name in used]
    block = [line.written("NodeSet") for line in node_sets] + [line.written("PartitionName") for line in partitions]
    return {**stack, SLURM_CONF: has + BLOCK + "".join(block)}


def _closed(partition: Line, memory: str | None) -> Line:
    """The partition without new jobs: those that are queued may start where they could before.

    Queued jobs that ask for no memory take the default of the moment, and one for larger pools might never fit here.
    """
    state = "INACTIVE" if partition.option("State").upper() in _STOPPED else "DRAIN"
    options = [(key, value) for key, value in partition.options if key.lower() not in _DROPPED]
    if memory is not None and not partition.option(_DEFAULT_MEMORY) and not partition.option("DefMemPerNode"):
        options.append((_DEFAULT_MEMORY, memory))
    return Line(name=partition.name, options=(*options, ("State", state)))
