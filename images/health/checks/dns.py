"""dns: slurmctld's name leads somewhere, and the node's own name leads here.

Through the C library, as Slurm does it, with /etc/hosts and search domains.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Status, Thresholds
from images.health.state import lasts
from images.health.verdict import fail, not_checked, ok, warn, worst

NAME: Final = "dns"

SECONDS: Final = 9.0
"""Time limit: two names, each asked twice, of two servers (`_RESOLVER`)."""

WARN_SECONDS: Final = 1.0
"""For one name. It takes a millisecond; the second one here is a lost packet."""

PERSISTS_SECONDS: Final = 60.0
"""A name server that is away for less, while its pod is replaced, is no reason to stop jobs."""

CONFIGURATION: Final = "run/slurm/conf/slurm.conf"
"""Below the root: where slurmd keeps what it fetched."""

_RESOLVER: Final = "timeout:1 attempts:2"
"""For resolv.conf(5)'s RES_OPTIONS: the defaults wait for 20 s and more on servers that are away."""

_HOST: Final = re.compile(r"(?im)^[ \t]*SlurmctldHost[ \t]*=[ \t]*([^\s(#]+)(?:\(([^)\s]+)\))?")


def resolve(name: str) -> list[str]:
    """Addresses of a name. Raises OSError (socket.gaierror)."""
    os.environ.setdefault("RES_OPTIONS", _RESOLVER)  # read when this process asks for the first time
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def is_ours(address: str) -> bool:
    """Whether this pod has an address. Asked of the kernel: nobody can bind to another's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((address.partition("%")[0], 0))
        except OSError:
            return False
    return True


def controllers(configuration: str) -> list[str]:
    """Names, or addresses, under which slurmctld is looked for: slurm.conf(5), `SlurmctldHost=NAME(ADDRESS)`."""
    return list(dict.fromkeys(match[2] or match[1] for match in _HOST.finditer(configuration)))


def _look_up(name: str, thresholds: Thresholds) -> tuple[Result, list[str]]:
    """One name: what there is to say, and its addresses."""
    started = time.monotonic()
    try:
        addresses = resolve(name)
    except socket.gaierror as error:
        if error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}:
            return fail("node", f"{name} is not known"), []
        if error.errno == socket.EAI_AGAIN:
            return warn("node", f"{name}: no name server answers"), []
        return not_checked(f"{name}: {error.strerror}"), []
    took = time.monotonic() - started
    values = {f'dns_seconds{{name="{name}"}}': took}
    if took >= thresholds.get(NAME, "warn_seconds", WARN_SECONDS):
        return warn("node", f"{name} took {took:.1f} s", values), addresses
    return ok(**values), addresses


def run(node: Node, _runner: Runner, thresholds: Thresholds) -> Result:
    """Look up all of them. What no server answers for a minute is a failure."""
    own, addresses = _look_up(node.name, thresholds)
    if addresses and not any(is_ours(address) for address in addresses):
        message = f"{node.name}, this node's own name, leads to {addresses[0]}, which is not an address of this pod"
        own = fail("node", message, own.values)
    found = [own]
    try:
        text = (node.root / CONFIGURATION).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        found.append(not_checked(f"cannot read slurmctld's name in /{CONFIGURATION}: {error.strerror}"))
    else:
        names = controllers(text)
        found += [_look_up(name, thresholds)[0] for name in names]
        if not names:
            found.append(not_checked(f"/{CONFIGURATION} names no SlurmctldHost"))
    is_silent = any(result.status is Status.WARN and not result.values for result in found)
    lasted = lasts(node, NAME, now=is_silent)
    if lasted >= thresholds.get(NAME, "persists_seconds", PERSISTS_SECONDS) and is_silent:
        found.append(fail("node", f"no answer for {lasted:.0f} s now"))
    return worst(found)


CHECK: Final = Check(
    name=NAME,
    summary="slurmctld's name resolves, and the node's own name leads to it",
    run=run,
    seconds=SECONDS,
)
