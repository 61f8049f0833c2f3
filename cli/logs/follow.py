"""What is being written, as it comes: `kubectl logs --follow` of the containers that were asked for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from datetime import datetime

from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.logs.gather import chosen
from cli.logs.sources import COMPONENT_LABEL, Container, containers
from slurm.names import POOL_LABEL

MOST = 60
"""Logs that are followed side by side: each is a connection at the API server."""


def follow(kubectl: Kubectl, namespace: str, name: str | None, since: datetime) -> int:
    """Let kubectl print until Ctrl-C; its exit status. `name`: as `gather` takes it; None: all. Raises Failure."""
    wanted = chosen(name, containers(kubectl.items("pod", "-n", namespace)))
    if len(wanted) > MOST:
        hint = "name a component, a container, a pool or a pod"
        raise Failure(f"{len(wanted)} logs are too many to follow; {MOST} go", hint=hint, code=USAGE)
    begin = f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}"
    options = ["--prefix", "--timestamps", begin, f"--max-log-requests={MOST}", *where(name, wanted)]
    command = [*kubectl.command(), "logs", "--follow", "-n", namespace, *options]
    try:
        return subprocess.run(command, env={**os.environ, **kubectl.environment}, check=False).returncode
    except KeyboardInterrupt:
        return 0


def where(name: str | None, wanted: Collection[Container]) -> list[str]:
    """The options that lead kubectl to these containers, or to these and more of the same pods."""
    pods = {item.pod for item in wanted}
    of = ["-c", name] if name is not None and {item.name for item in wanted} == {name} else ["--all-containers"]
    if len(pods) == 1:
        return [*pods, *of]
    if {item.pool for item in wanted} == {name}:
        return ["-l", f"{POOL_LABEL}={name}", *of]
    return ["-l", f"{COMPONENT_LABEL} in ({', '.join(sorted({item.component for item in wanted}))})", *of]
