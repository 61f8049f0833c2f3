"""known-host: what ssh in the jail knows the workers by (`KnownHostsCommand`): one key for the nodes of all pools."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

KEY: Final = Path("/run/slurm/ssh/ssh_host_ed25519_key.pub")
"""A file of a ConfigMap, where sshd runs on workers (components/worker_ssh.py)."""

SLURM_CONF: Final = Path("/run/slurm/conf/slurm.conf")


def known_host(host: str, key: Path = KEY, conf: Path = SLURM_CONF) -> str:
    """A line of known_hosts for a node of this cluster; empty for all others, which ssh knows by other ways."""
    pool, _, number = host.rpartition("-")
    try:
        pools = re.findall(r"^NodeSet=(\S+)", conf.read_text(encoding="utf-8"), re.MULTILINE)
        public = key.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return f"{host} {public}\n" if pool in pools and number.isdecimal() else ""


def main() -> int:
    """Entry point. ssh gives up where this fails."""
    sys.stdout.write(known_host(sys.argv[1]))
    return 0
