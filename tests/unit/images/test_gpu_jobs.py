"""Files that tell exporters of GPUs' figures which jobs have which GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.gpu_jobs import GpuJobs

GPUS = ("4", "5.7")
"""Those of a pod that has a whole one and a part of its machine's; Slurm's numbers are 0 and 1."""


@pytest.fixture
def jobs(tmp_path: Path) -> GpuJobs:
    made = GpuJobs(shown=tmp_path / "shown", own=tmp_path / "own")
    made.start(GPUS)
    return made


def shown(jobs: GpuJobs) -> dict[str, str]:
    return {path.name: path.read_text() for path in jobs.shown.glob("dcgm/*") if path.is_file()}


def test_a_start_forgets_the_jobs_of_before_and_leaves_other_pods_their_gpus(jobs: GpuJobs) -> None:
    jobs.begin("17", (0, 1))
    (jobs.shown / "dcgm/0").write_text("16\n")
    jobs.start(GPUS)
    assert shown(jobs) == {"0": "16\n"}
    jobs.begin("18", (0,))
    assert "17" not in "".join(shown(jobs).values())
