"""Files that tell exporters of GPUs' figures which jobs have which GPU; tests/slurm/test_gpus.py shows them."""

from __future__ import annotations

from pathlib import Path

from images.common.gpu_jobs import GpuJobs


def test_a_start_forgets_the_jobs_of_before_and_leaves_other_pods_their_gpus(tmp_path: Path) -> None:
    jobs = GpuJobs(shown=tmp_path / "shown", own=tmp_path / "own")
    jobs.start(["4", "5.7"])
    jobs.begin("17", (0, 1))
    (jobs.shown / "dcgm/0").write_text("16\n")
    jobs.start(["4", "5.7"])
    jobs.begin("18", (0,))
    assert {path.name: path.read_text() for path in jobs.shown.glob("dcgm/*")} == {"0": "16\n", "4": "18\n"}
