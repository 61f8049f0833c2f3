"""What sacct prints for runs of the days that the tests are about, and a kubectl whose controller has such a sacct."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from images.common.slurm_runs import DELIMITER, Run, parse_runs

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
START = datetime(2026, 11, 20, tzinfo=UTC)
MIB, GIB = 2**20, 2**30


class Controller:
    """kubectl with a controller whose sacct gives one answer."""

    def __init__(self, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.answer = subprocess.CompletedProcess([], code, stdout, stderr)
        self.asked: list[tuple[str, ...]] = []

    def run(self, *arguments: str, **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(arguments)
        return self.answer


def epoch(hour: float) -> int:
    """Seconds since 1970 at an hour after START."""
    return int((START + timedelta(hours=hour)).timestamp())


def job_line(**changes: Any) -> str:
    """A job of two CPUs and 4 GiB that ran for an hour."""
    job = {
        "id": "7", "number": "7", "user": "alice", "state": "COMPLETED", "start": epoch(0),
        "end": epoch(1), "seconds": 3600, "tres": "billing=2,cpu=2,mem=4G,node=1", "cpus": 2, "nodes": 1,
        "used": "00:00:00", "usage": "", "account": "ml",
    }  # fmt: skip
    return DELIMITER.join(str(value) for value in {**job, **changes}.values())


def step_line(cpu: str = "01:00:00", memory: int | None = GIB, **changes: Any) -> str:
    """Its batch step, which used one CPU and 1 GiB. No memory: it was never looked at."""
    usage = "energy=0" if memory is None else f"cpu={cpu.partition('.')[0]},energy=0,mem={memory}"
    values = {"id": "7.batch", "number": "7.batch", "user": "", "used": cpu, "usage": usage}
    return job_line(**{**values, **changes})


def job(*steps: str, **changes: Any) -> Run:
    """The job with these steps, or with its usual one."""
    (found,) = parse_runs([job_line(**changes), *(steps or (step_line(),))])
    return found
