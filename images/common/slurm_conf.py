"""The one reader of slurm.conf: its keys do not depend on case, comments begin with `#`, and files may be included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SLURM_CONF: Final = "slurm.conf"

IN_FORCE: Final = Path("/var/spool/slurmctld/slurmstack/current") / SLURM_CONF
"""What slurmctld runs with: as the stack has made it, with the partitions that are kept for their jobs."""

_OPTION: Final = re.compile(r"([^\s=]+)\s*=\s*(\"[^\"]*\"|\S+)")


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
    """The lines that begin with a keyword, by name. `DEFAULT` is no name: it sets options of the lines below it."""
    found = {}
    for line in text.replace("\\\n", " ").split("\n"):
        options = _OPTION.findall(re.split(r"(?<!\\)#", line, maxsplit=1)[0])
        if options and options[0][0].lower() == keyword.lower() and options[0][1].upper() != "DEFAULT":
            found[options[0][1]] = Line(name=options[0][1], options=tuple(options[1:]))
    return found
