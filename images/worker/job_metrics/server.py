"""Serves the figures of a node's jobs, and those of its health, to Prometheus.

It is a process of its own beside slurmd, as only slurmd's container sees the jobs' cgroups: nobody's, without rights.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.http_server import PROMETHEUS, Answer, start_server
from images.worker.job_metrics.cgroups import read_jobs
from images.worker.job_metrics.figures import text

PORT: Final = 9306
"""That of the cgroup_exporter: jobstats cuts it off the instance, whatever it is."""

HEALTH: Final = Path("/run/slurmstack/health/metrics.prom")

NOBODY: Final = 65534
_MEMORY: Final = 1 << 30
"""Bytes of addresses: whoever opens connections must not take what the jobs have. Beyond it there is no new thread."""


def answer(node: str, path: str, health: Path = HEALTH) -> Answer:
    """What is sent to who asks for a path."""
    if path != "/metrics":
        return Answer("text/plain", "known: /metrics\n", HTTPStatus.NOT_FOUND)
    of_jobs, of_health = text(read_jobs(node)), ""
    with contextlib.suppress(OSError):  # there are no checks, or they have not run yet
        of_health = health.read_text(encoding="utf-8")
    return Answer(PROMETHEUS, of_jobs + of_health)


def start(node: str, log: Callable[[str], None]) -> None:
    """Serve beside the daemon that this process becomes. Raises OSError where no process can be made."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        _give_up_rights()
        start_server(partial(answer, node), PORT)
        while True:
            signal.pause()
    except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
        log(f"no figures of jobs: {type(error).__name__}: {error}")
    finally:
        os._exit(1)


def _give_up_rights() -> None:
    os.chdir("/")
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    keep_only("SETUID")
    os.setresuid(NOBODY, NOBODY, NOBODY)  # which ends the last one
