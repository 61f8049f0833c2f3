"""await-config HASH, or --mounted DIRECTORY: ends when the controller runs with that configuration, or has rejected it.

Runs in a Kubernetes Job, so that an update of the stack waits for it. With a directory, where the ConfigMap is mounted,
the Job is the same whatever is in it. Exit code 0: active. 2: rejected; Slurm's message is on standard output. It has
no deadline of its own: the Job has.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from images.common.process import program
from images.common.wait import Clock, Reminder
from images.controller.configuration import config_hash, read_files

POLL_SECONDS: Final = 0.1
REJECTED: Final = 2


def fetch_status(url: str) -> dict[str, Any]:
    """The config agent's answer. Raises OSError or ValueError where there is none."""
    with urllib.request.urlopen(f"{url}/config", timeout=3) as response:  # noqa: S310 - an address of the own cluster
        status: dict[str, Any] = json.load(response)
    return status


def await_config(
    name: Callable[[], str], fetch: Callable[[], dict[str, Any]], log: Callable[[str], None], clock: Clock | None = None
) -> int:
    """Poll until the configuration is active (0) or rejected (2). `name` says which one, and is asked each time.

    A mounted one changes: kubelet may have had an older one when this began, and another update may have come since.
    """
    clock = clock or Clock()
    reminder = Reminder(log, clock)
    while True:
        try:
            wanted, status = name(), fetch()
        except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException) as error:
            reminder.waiting(f"the controller's config agent ({error})")
        else:
            rejected = status.get("rejected") or {}
            if status.get("active") == wanted:
                log(f"configuration {wanted} is active")
                return 0
            if rejected.get("hash") == wanted:
                log(f"configuration {wanted} is rejected; {status.get('active') or 'none'} is active. Slurm says:")
                log(str(rejected.get("message", "")))
                return REJECTED
            reminder.waiting(
                f"configuration {wanted} (active: {status.get('active')}, pending: {status.get('pending')})"
            )
        clock.sleep(POLL_SECONDS)


def main() -> int:
    """Entry point."""
    wanted = wanted_of(sys.argv[1:])
    if wanted is None:
        sys.stderr.write("usage: await-config HASH | --mounted DIRECTORY\n")
        return 64
    url = os.environ.get("AGENT_URL", "http://controller-0:8817").rstrip("/")
    with program("await-config") as log:
        return await_config(wanted, lambda: fetch_status(url), log)


def wanted_of(arguments: Sequence[str]) -> Callable[[], str] | None:
    """Tells the configuration that the arguments name; None where they name none.

    It raises OSError where the files are being exchanged.
    """
    match arguments:
        case ["--mounted", directory]:
            return lambda: config_hash(read_files(Path(directory)))
        case [name] if not name.startswith("-"):
            return lambda: name
        case _:
            return None
