"""The least configuration with which Slurm runs in a sandbox: the product's own, but for what is named here."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from config import load_config
from config.cluster import ClusterConfig
from slurm.certificates import SEED_BYTES
from slurm.conf import effective_settings, render, settings_of

SEED = base64.b64encode(bytes(range(SEED_BYTES))).decode()
"""Of the keys of TLS servers."""

IN_JAIL = {"plugstack.conf": "required /usr/lib/slurmstack/jail.so root=/jail\n"}
"""The file that takes steps into the jail."""

LONG_LINES = "# Slurm takes the length of gres.conf for that of the longest line, of a worker's own ones, too.\n"
"""For a gres.conf of a test, which would be shorter than they are (images/common/native/guarded.c)."""

IMPATIENT = "MessageTimeout=10\n"
"""For where slurmctld is away: each command asks for it for so long, in the product for half a minute."""

STACK: Mapping[str, Any] = {
    "cloud": {"kind": "existing"},
    "worker_nodes": {"default": {"size": 2, "resources": {"cpus": 2, "memory": "1128Mi"}}},
    "slurm": {"cluster_name": "sandbox"},
    "health": {"enabled": False},
}
"""The stack file of a sandbox: its nodes are as `DEFAULT_NODE_CONF` has them."""

EXCEPTIONS: Mapping[str, str | None] = {
    "DisableRootJobs": "NO",  # tests submit as root where it does not matter who does
    "DefMemPerCPU": "100",  # the nodes of some tests have many CPUs and no more memory
    "MaxMemPerNode": None,  # or more memory than those of the stack
    "MpiDefault": "none",  # a PMIx server for each step costs CPU: tests of MPI ask for one
    "Epilog": None,  # it needs the helper, which only runs where there is a jail: tests with one have it
}
"""Keys of slurm.conf that differ from the product's, each with its reason. None: left out."""

LEFT_OUT = (
    "plugstack.conf",  # it takes steps into the jail, which most sandboxes have not
    "mpi.conf",  # as MpiDefault
)
"""Files of the product that only some tests have."""


def identity(users: Mapping[str, int], home: str = "/home/{}") -> dict[str, str]:
    """`passwd` and `group` with these users, each with a group of the same number."""
    passwd = [f"{name}:x:{uid}:{uid}::{home.format(name)}:/bin/bash\n" for name, uid in users.items()]
    return {"passwd": "".join(passwd), "group": "".join(f"{name}:x:{uid}:\n" for name, uid in users.items())}


def add_accounts(known: Mapping[str, str], *roots: Path) -> None:
    """Add what `identity` gives to these root file systems."""
    for name, text in known.items():
        for root in roots:
            with (root / "etc" / name).open("a") as file:
                file.write(text)


def lines_of(stack: ClusterConfig, *keys: str) -> str:
    """Lines of the slurm.conf that a stack has, for `extra`."""
    settings = effective_settings(stack)
    return "".join(f"{key}={settings[key]}\n" for key in keys)


def minimal_config(version: str, extra: str = "", **files: str) -> dict[str, str]:
    """The files of a sandbox; `extra`: lines of slurm.conf, in place of its own where they are about the same key."""
    return _configuration(version, extra, accounting=False) | files


def accounting_config(version: str, extra: str = "", **files: str) -> dict[str, str]:
    """The same with accounting."""
    return _configuration(version, extra, accounting=True) | files


def _configuration(version: str, extra: str, *, accounting: bool) -> dict[str, str]:
    files = render(stack_of(version, accounting=accounting))
    kept = {name: text for name, text in files.items() if name not in LEFT_OUT}
    return {**kept, "slurm.conf": with_lines(with_settings(files["slurm.conf"], EXCEPTIONS), extra)}


@cache
def stack_of(version: str, *, accounting: bool) -> ClusterConfig:
    """The stack of a sandbox."""
    slurm = {**STACK["slurm"], "version": version}
    return load_config({**STACK, "slurm": slurm, "accounting": {"enabled": accounting}})


def with_lines(text: str, lines: str) -> str:
    """slurm.conf with more lines. A setting that is there already is replaced: Slurm complains of a second one."""
    asked = settings_of(lines)
    there = {key.lower() for key in settings_of(text)}
    replaced = {key: value for key, value in asked.items() if key.lower() in there}
    added = [line for line in lines.splitlines() if line.partition("=")[0] not in replaced]
    return "".join([with_settings(text, replaced), *(f"{line}\n" for line in added)])


def with_settings(text: str, settings: Mapping[str, str | None]) -> str:
    """slurm.conf with these values where it has their keys, and without the lines whose value is None."""
    wanted = {key.lower(): value for key, value in settings.items()}
    lines = []
    for line in text.splitlines():
        key = line.partition("=")[0]
        value = wanted.get(key.lower(), "")
        if value is not None:
            lines.append(f"{key}={value}" if value else line)
    return "\n".join(lines) + "\n"
