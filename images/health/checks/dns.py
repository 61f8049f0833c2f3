"""dns: slurmctld's name and the node's own lead somewhere.

Through the C library, as Slurm does it, with /etc/hosts and search domains.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok, warn, worst
from images.health.state import lasts

NAME: Final = "dns"

SECONDS: Final = 9.0
"""Time limit: two names, each asked twice, of two servers (`_RESOLVER`)."""

WARN_SECONDS: Final = 1.0
"""For one name. It takes a millisecond; the second one here is a lost packet."""

PERSISTS_SECONDS: Final = 60.0
"""A name server that is away for less, while its pod is replaced, is no reason to stop jobs."""

CONFIGURATION: Final = "run/slurm/conf/slurm.conf"
"""Below the root: where slurmd keeps what it fetched."""

_SILENT: Final = "no name server answers"

_RESOLVER: Final = "timeout:1 attempts:2"
"""For resolv.conf(5)'s RES_OPTIONS: the defaults wait for 20 s and more on servers that are away."""

_HOST: Final = re.compile(r"(?im)^[ \t]*SlurmctldHost[ \t]*=[ \t]*([^\s(#]+)(?:\(([^)\s]+)\))?")


def resolve(name: str) -> None:
    """Ask for the addresses of a name. Raises OSError (socket.gaierror)."""
    os.environ.setdefault("RES_OPTIONS", _RESOLVER)  # read when this process asks for the first time
    socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)


def controllers(configuration: str) -> list[str]:
    """Names, or addresses, under which slurmctld is looked for: slurm.conf(5), `SlurmctldHost=NAME(ADDRESS)`."""
    return list(dict.fromkeys(match[2] or match[1] for match in _HOST.finditer(configuration)))


def _look_up(name: str) -> Result:
    started = time.monotonic()
    try:
        resolve(name)
    except socket.gaierror as error:
        if error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}:
            return fail("node", f"{name} is not known")
        if error.errno == socket.EAI_AGAIN:
            return warn("node", f"{name}: {_SILENT}")
        return not_checked(f"{name}: {error.strerror}")
    took = time.monotonic() - started
    return warn("node", f"{name} took {took:.1f} s") if took >= WARN_SECONDS else ok()


def run(node: Node, _runner: Runner) -> Result:
    """Look up all of them. What no server answers for a minute is a failure."""
    try:
        text = (node.root / CONFIGURATION).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return not_checked(f"cannot read slurmctld's name in /{CONFIGURATION}: {error.strerror}")
    found = [_look_up(name) for name in (node.name, *controllers(text))]
    lasted = lasts(node, NAME, now=any(result.message.endswith(_SILENT) for result in found))
    if lasted >= PERSISTS_SECONDS:
        found.append(fail("node", f"no answer for {lasted:.0f} s now"))
    return worst(found)


CHECK: Final = Check(name=NAME, run=run, seconds=SECONDS)
