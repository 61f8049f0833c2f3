"""The one reader of slurm.conf: its keys do not depend on case, comments begin with `#`, and files may be included.

Partitions that have left the stack stay in it, closed for new jobs, until their last job has gone. A slurmctld that no
longer finds the partition of a job in its files ends the job with NODE_FAIL, a pending one as well (measured with 24.11
and 26.05). So what the version in force has and a new one lacks goes into a block at the end of the new slurm.conf. The
block is the only memory of it: it is on disk with the version, so that restarts of the agent, of slurmctld and of the
pod change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLURM_CONF: Final = "slurm.conf"

IN_FORCE: Final = Path("/var/spool/slurmctld/slurmstack/current") / SLURM_CONF
"""What slurmctld runs with: as the stack has made it, with the partitions that are kept for their jobs."""

_OPTION: Final = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|\S+)")

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


def with_included(files: Mapping[str, str]) -> dict[str, str]:
    """slurm.conf and the files that it includes."""
    found: dict[str, str] = {}
    names = [SLURM_CONF]
    while names:
        name = names.pop()
        if name in files and name not in found:
            found[name] = files[name]
            names += re.findall(r"(?im)^\s*include\s+(\S+)", files[name])
    return found


def setting(files: Mapping[str, str], key: str) -> str | None:
    """Value of a key in small letters, the last one as in Slurm itself; None where it is not set.

    Options of partitions are none: some have the name of a setting.
    """
    pattern = re.compile(rf"(?im)^(?!\s*(?:#|PartitionName\s*=))(?:.*\s)?{re.escape(key)}\s*=\s*(\S+)")
    return next((found[-1].lower() for text in with_included(files).values() if (found := pattern.findall(text))), None)


def uses_database(files: Mapping[str, str]) -> bool:
    """Whether the configuration keeps its accounts in slurmdbd."""
    return setting(files, "AccountingStorageType") == "accounting_storage/slurmdbd"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A `PartitionName` or `NodeSet` line."""

    name: str
    options: tuple[tuple[str, str], ...]
    """Without the name."""

    def option(self, key: str) -> str:
        """Value of an option, empty where it is not set."""
        return next((value for name, value in self.options if name.lower() == key.lower()), "")

    def written(self, keyword: str) -> str:
        """As in slurm.conf."""
        return " ".join(f"{key}={value}" for key, value in ((keyword, self.name), *self.options)) + "\n"


def lines_of(text: str, keyword: str) -> dict[str, Line]:
    """The lines that begin with a keyword, by name.

    `DEFAULT` is no name, as it sets options of the lines below it; but it may be one of a NodeSet, as of any pool.
    """
    found = {}
    for line in text.replace("\\\n", " ").split("\n"):
        options = _OPTION.findall(re.split(r"(?<!\\)#", line, maxsplit=1)[0])
        is_named = options and (keyword == "NodeSet" or options[0][1].upper() != "DEFAULT")
        if is_named and options[0][0].lower() == keyword.lower():
            found[options[0][1]] = Line(name=options[0][1], options=tuple(options[1:]))
    return found


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
