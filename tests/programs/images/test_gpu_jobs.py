"""Files that tell exporters of GPUs' figures which jobs have which GPU."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from images.common.gpu_jobs import Gpu, GpuJobs
from images.health.contract import Node, Thresholds
from images.health.epilog import Epilog
from images.health.local import Local
from images.health.prolog import Prolog
from images.health.registry import Registry
from tests.fakes.commands import FakeRunner

GPUS = (Gpu(name="4", uuid="GPU-d4"), Gpu(name="5", uuid="GPU-d5"))
"""Those of a pod that has half of its machine's; Slurm's numbers are 0 and 1."""


@pytest.fixture
def jobs(tmp_path: Path) -> GpuJobs:
    made = GpuJobs(shown=tmp_path / "shown", own=tmp_path / "own")
    made.start(GPUS)
    return made


def shown(jobs: GpuJobs) -> dict[str, str]:
    return {
        str(path.relative_to(jobs.shown)): path.read_text() for path in sorted(jobs.shown.rglob("*")) if path.is_file()
    }


def around(jobs: GpuJobs, tmp_path: Path) -> list[str]:
    """What prolog and epilog of job 17, which has both GPUs, log."""
    log: list[str] = []
    (tmp_path / "proc").mkdir()
    local = Local(node=Node(name="w-0", root=tmp_path, state=tmp_path / "state"), thresholds=Thresholds())
    environment = {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0", "SLURM_JOB_GPUS": "0-1"}
    for program in (Prolog, Epilog):
        program(
            local=local, registry=Registry(), log=log.append, runner=FakeRunner(), environment=environment,
            jobs=tmp_path / "jobs", gpu_jobs=jobs,
        ).run()  # fmt: skip
    return log


def test_a_job_starts_and_ends_where_nothing_can_be_written(jobs: GpuJobs, tmp_path: Path) -> None:
    for name in ("4", "5"):
        (jobs.shown / "dcgm" / name / "full").mkdir(parents=True)
    log = around(jobs, tmp_path)
    assert [line.partition(":")[0] for line in log] == ["job 17", "job 17"]
    assert "nobody is told which GPUs it has" in log[0]
    assert str(jobs.shown / "dcgm/4") in log[0]


@pytest.mark.parametrize("place", ["", "dcgm", "gpustat"])
def test_a_pipe_in_place_of_a_directory_keeps_no_job_and_the_rest_is_shown(
    jobs: GpuJobs, tmp_path: Path, place: str
) -> None:
    shutil.rmtree(jobs.shown / place)
    os.mkfifo(jobs.shown / place)
    assert len(around(jobs, tmp_path)) == 2
    with pytest.raises(OSError, match=str(jobs.shown / place)):
        jobs.begin("18", 1001, (0,))
    assert len(shown(jobs) if place else {}) == {"": 0, "dcgm": 2, "gpustat": 1}[place]
