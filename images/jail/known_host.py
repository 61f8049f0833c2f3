"""known-host: what ssh in the jail knows nodes by (`KnownHostsCommand`): a key of all workers, one of login nodes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

KEY: Final = Path("/run/slurm/ssh/ssh_host_ed25519_key.pub")
"""A file of a ConfigMap, where sshd runs on workers (components/worker_ssh.py)."""

LOGIN_KEY: Final = "login_host_ed25519_key.pub"
"""Beside it, the key of login nodes."""

SLURM_CONF: Final = Path("/run/slurm/conf/slurm.conf")


def known_host(host: str, key: Path = KEY, conf: Path = SLURM_CONF) -> str:
    """A line of known_hosts for a node of this cluster; empty for all others, which ssh knows by other ways."""
    pool, _, number = host.rpartition("-")
    try:
        pools = re.findall(r"^NodeSet=(\S+)", conf.read_text(encoding="utf-8"), re.MULTILINE)
        if host == "login" or (pool == "login" and number.isdecimal()):  # no pool has that name
            key = key.with_name(LOGIN_KEY)
        elif pool not in pools or not number.isdecimal():
            return ""
        return f"{host} {key.read_text(encoding='utf-8').strip()}\n"
    except OSError:
        return ""


def main() -> int:
    """Entry point. ssh gives up where this fails."""
    sys.stdout.write(known_host(sys.argv[1]))
    return 0
