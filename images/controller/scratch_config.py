"""The configuration of a scratch slurmctld: the one to be checked, less everything that would reach outside.

The scratch slurmctld must not register with the accounting database, run a site's programs, power nodes on or off, or
touch the state of the real one. Lines keep their numbers, so that its messages fit the file that the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from images.common.secret_files import JWT_KEY
from images.common.slurm_conf import uses_database, with_included
from images.controller.topology import TOPOLOGY_CONF

_REPLACED: Final = (
    "SlurmctldPort", "SlurmdPort", "StateSaveLocation", "SlurmctldPidFile", "SlurmctldLogFile", "SlurmctldDebug",
    "SlurmctldSyslogDebug", "LogTimeFormat", "SlurmSchedLogFile", "JobCompType",
)  # fmt: skip
"""Given a value of our own."""

_DROPPED: Final = (
    "PrologSlurmctld", "EpilogSlurmctld", "HealthCheckProgram", "HealthCheckInterval", "ResumeProgram",
    "ResumeFailProgram", "SuspendProgram",
    "RebootProgram", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg", "MailProg", "JobCompHost",
    "JobCompLoc", "JobCompPass", "JobCompPort", "JobCompUser", "JobCompParams",
)  # fmt: skip
"""Left out: programs that would run, and addresses of other services."""

_DROPPED_WITH_DATABASE: Final = (
    "AccountingStorageType", "AccountingStorageHost", "AccountingStorageBackupHost", "AccountingStoragePort",
    "AccountingStoragePass", "AccountingStorageUser", "AccountingStorageEnforce", "AccountingStorageTRES",
    "AccountingStorageExternalHost", "AccountingStoreFlags", "PriorityWeightAge", "PriorityWeightFairshare",
    "PriorityWeightTRES",
)  # fmt: skip
"""Left out where slurmdbd is used: they are an error without it."""

_LEAF_NODES: Final = re.compile(r"(?im)(?<!\S)Nodes\s*=\s*\S+")
_STAND_IN: Final = "slurmstack-scratch-"

_PARTITION_DATABASE_KEYS: Final = (
    "AllowQos", "DenyQos", "QOS", "AllowAccounts", "DenyAccounts", "TRESBillingWeights",
)  # fmt: skip
"""Refer to what only the database knows."""

_ALLOW_GROUPS: Final = re.compile(r"(?i)(?<!\S)AllowGroups\s*=\s*(\S+)")
GROUP_FILE: Final = "group"
"""Declared groups, published with slurm.conf: this machine knows them only when that has happened."""


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Where the scratch slurmctld keeps things, and the ports that it takes."""

    directory: str
    slurmctld_port: int
    slurmd_port: int

    def settings(self) -> dict[str, str]:
        """Values for `_REPLACED`."""
        return {
            "SlurmctldPort": str(self.slurmctld_port),
            "SlurmdPort": str(self.slurmd_port),
            "StateSaveLocation": f"{self.directory}/state",
            "SlurmctldPidFile": f"{self.directory}/slurmctld.pid",
            "SlurmctldDebug": "info",
            "SlurmctldSyslogDebug": "quiet",
            "LogTimeFormat": "iso8601_ms",
            "JobCompType": "jobcomp/none",
            "MailProg": "/bin/true",
        }


def _without(line: str, keys: Iterable[str]) -> str:
    names = "|".join(map(re.escape, keys))
    return re.sub(rf"(?i)(?<!\S)(?:{names})\s*=\s*(?:\"[^\"]*\"|\S+)", "", line)


def _without_groups(line: str, known: frozenset[str]) -> str:
    """A partition's line without the groups that will be known once the files are published."""

    def unknown(found: re.Match[str]) -> str:
        names = [name for name in found[1].split(",") if name not in known]
        return f"AllowGroups={','.join(names)}" if names else ""

    return _ALLOW_GROUPS.sub(unknown, line)


def scratch_files(files: Mapping[str, str], scratch: Scratch) -> dict[str, str]:
    """The files as the scratch slurmctld gets them.

    The key of the tokens is one of its own: the real one is slurmctld's, and may not be there yet.
    """
    database = uses_database(files)
    keys = [*_REPLACED, *_DROPPED, *(_DROPPED_WITH_DATABASE if database else ())]
    groups = frozenset(line.partition(":")[0] for line in files.get(GROUP_FILE, "").splitlines())
    result = dict(files)
    for name, content in with_included(files).items():
        lines = []
        for line in content.splitlines():
            changed = line if line.lstrip().startswith("#") else _without(line, keys)
            if changed.lstrip().lower().startswith("partitionname="):
                changed = _without_groups(changed, groups)
                changed = _without(changed, _PARTITION_DATABASE_KEYS) if database else changed
            lines.append(changed.replace(str(JWT_KEY), f"{scratch.directory}/{JWT_KEY.name}"))
        result[name] = "\n".join(lines) + "\n"
    result["slurm.conf"] = result.get("slurm.conf", "") + "".join(
        f"{key}={value}\n" for key, value in scratch.settings().items()
    )
    if TOPOLOGY_CONF in files:
        result[TOPOLOGY_CONF], nodes = _with_stand_ins(files[TOPOLOGY_CONF])
        result["slurm.conf"] += nodes
    return result


def _with_stand_ins(topology: str) -> tuple[str, str]:
    """The tree with one node of our own below each leaf switch, and the line that makes these nodes.

    The scratch slurmctld knows no dynamic node, and would complain about each.
    """
    parts = _LEAF_NODES.split(topology)
    count = len(parts) - 1
    tree = "".join(f"{part}Nodes={_STAND_IN}{number}" for number, part in enumerate(parts[:-1])) + parts[-1]
    return tree, f"NodeName={_STAND_IN}[0-{count - 1}] NodeAddr=127.0.0.1 State=FUTURE\n" if count else ""
