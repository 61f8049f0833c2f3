"""Serves the metrics of a node's jobs, and those of its health, to Prometheus, in the names that `jobstats` reads.

It is a process of its own beside slurmd, as only slurmd's container sees the jobs' cgroups: nobody's, without rights.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.http_server import PROMETHEUS, Answer, start_server
from images.common.steps import PROC, user_of
from images.worker.confine import numbers

Metrics = Mapping[str, float]
"""Of one job on this node, by the names of SERIES, and `uid`. Times in seconds, memory in bytes."""

SERIES: Final = (
    "cpu_total_seconds", "cpus", "memory_rss_bytes", "memory_shmem_bytes", "memory_total_bytes", "memory_fail_count",
)  # fmt: skip
"""Names of the cgroup_exporter for jobstats: those that jobstats and our dashboards ask for."""

MOUNT: Final = Path("/sys/fs/cgroup")
_JOB: Final = re.compile(r"job_(\d+)")

PORT: Final = 9306
"""That of the cgroup_exporter: jobstats cuts it off the instance, whatever it is."""

HEALTH: Final = Path("/run/slurmstack/health/metrics.prom")

NOBODY: Final = 65534
_MEMORY: Final = 1 << 30
"""Bytes of addresses: whoever opens connections must not take what the jobs have. Beyond it there is no new thread."""


def text(jobs: Mapping[str, Metrics]) -> str:
    """All jobs. `step` and `task` are empty, as jobstats asks for them: a job's metrics are those of all its steps."""
    lines: list[str] = []
    for name in SERIES:
        found = [f'{{jobid="{job}",step="",task=""}} {metrics.get(name, 0):.15g}' for job, metrics in jobs.items()]
        lines += _series(name, found)
    uids = [f'{{jobid="{job}"}} {metrics["uid"]}' for job, metrics in jobs.items() if "uid" in metrics]
    lines += _series("uid", uids)
    return "".join(f"{line}\n" for line in lines)


def _series(name: str, found: Sequence[str]) -> list[str]:
    name = f"cgroup_{name}"
    return [f"# TYPE {name} gauge", *(f"{name}{line}" for line in found)] if found else []


def read_jobs(node: str, mount: Path = MOUNT, proc: Path = PROC) -> dict[str, Metrics]:
    """Those of a node by the job's number; none where jobs have no cgroups. A job that ends meanwhile is left out."""
    found = {}
    for directory in sorted(mount.glob(f"system.slice/{node}_slurmstepd.scope/job_*")):
        match = _JOB.fullmatch(directory.name)
        if match:
            with contextlib.suppress(OSError, KeyError, ValueError):
                found[match[1]] = _metrics(directory, proc)
    return found


def _metrics(group: Path, proc: Path) -> Metrics:
    cpu, memory, events = (_table(group / name) for name in ("cpu.stat", "memory.stat", "memory.events"))
    limit = (group / "memory.max").read_text(encoding="ascii").strip()
    uid = _user(group, proc)
    return {
        "cpu_total_seconds": (cpu["user_usec"] + cpu["system_usec"]) / 1e6,
        "cpus": len(numbers((group / "cpuset.cpus.effective").read_text(encoding="ascii"))),
        "memory_rss_bytes": memory["anon"] + memory.get("swapcached", 0),
        "memory_shmem_bytes": memory["shmem"],
        "memory_total_bytes": -1 if limit == "max" else int(limit),
        "memory_fail_count": events["oom"],
        **({} if uid is None else {"uid": uid}),
    }


def _user(group: Path, proc: Path) -> int | None:
    """That of the first process that is not root's: slurmstepd's own are. None while the job has no task here."""
    for path in group.glob("step_*/user/*/cgroup.procs"):
        first = path.read_text(encoding="ascii").partition("\n")[0]
        uid = user_of(int(first), proc) if first else None
        if uid:
            return uid
    return None


def _table(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}


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
        log(f"no metrics of jobs: {type(error).__name__}: {error}")
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
