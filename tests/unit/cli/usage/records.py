"""What sacct prints for runs of the days that the tests are about, and a kubectl whose controller has such a sacct."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from images.common.slurm_runs import DELIMITER, Run, parse_runs

NOW = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)  # a Saturday
START = datetime(2026, 11, 20, tzinfo=UTC)
MIB, GIB = 2**20, 2**30

REAL = """\
10|10|alice|COMPLETED|1795624211|1795624258|47|billing=1,cpu=1,mem=400M,node=1|1|1|00:00.173||default
10.batch|10.batch||COMPLETED|1795624211|1795624258|47|cpu=1,mem=400M,node=1|1|1|00:00.024|\
cpu=00:00:00,energy=0,fs/disk=36346,mem=12685312,pages=0,vmem=300249088|default
10.0|10.0||COMPLETED|1795624212|1795624258|46|cpu=1,mem=400M,node=1|1|1|00:00.148|\
cpu=00:00:00,energy=0,fs/disk=39412,mem=165842944,pages=1,vmem=172093440|default
13+0|13|alice|COMPLETED|1795624231|1795624235|4|billing=1,cpu=1,mem=100M,node=1|1|1|00:00.037||default
13+0.batch|13.batch||COMPLETED|1795624231|1795624235|4|cpu=1,mem=100M,node=1|1|1|00:00.032|energy=0|default
13+0.0|13.0||COMPLETED|1795624231|1795624235|4|cpu=1,mem=100M,node=1|1|1|00:00.004|energy=0|default
13+1|14|alice|COMPLETED|1795624231|1795624235|4|billing=1,cpu=1,mem=100M,node=1|1|1|00:00.004||default
13+1.0|14.0||COMPLETED|1795624231|1795624235|4|cpu=1,mem=100M,node=1|1|1|00:00.004|energy=0|default
12_[1-3]|12|alice|PENDING|Unknown|Unknown|0||0|1|00:00:00||default
""".replace("|", DELIMITER)
"""Of Slurm 24.11 with jobacct_gather/linux: one job that held 150 MiB in a step, the two parts of a heterogeneous one,
and an array that waits."""


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
