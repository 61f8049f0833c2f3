"""Files that tell exporters of GPUs' figures which jobs have which GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common.gpu_jobs import Gpu, GpuJobs

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


def test_a_job_is_shown_at_its_gpus_until_it_ends(jobs: GpuJobs) -> None:
    jobs.begin("17", 1001, (1,))
    assert shown(jobs) == {"dcgm/5": "17\n", "gpustat/5": "17 1001\n", "gpustat/GPU-d5": "17 1001\n"}
    assert (jobs.shown / "dcgm/5").stat().st_mode & 0o777 == 0o644
    jobs.end("17")
    assert shown(jobs) == {}


def test_jobs_that_share_a_gpu_are_all_shown_where_there_is_room_for_several(jobs: GpuJobs) -> None:
    jobs.begin("9", 1001, (0,))
    jobs.begin("10", 1002, (0, 1))
    assert shown(jobs) == {
        "dcgm/4": "9\n10\n", "dcgm/5": "10\n", "gpustat/5": "10 1002\n", "gpustat/GPU-d5": "10 1002\n",
    }  # fmt: skip
    jobs.end("10")
    assert shown(jobs) == {"dcgm/4": "9\n", "gpustat/4": "9 1001\n", "gpustat/GPU-d4": "9 1001\n"}


def test_a_start_forgets_the_jobs_of_before_and_leaves_other_pods_their_gpus(jobs: GpuJobs) -> None:
    jobs.begin("17", 1001, (0, 1))
    (jobs.shown / "dcgm/0").write_text("16\n")
    jobs.start(GPUS)
    assert shown(jobs) == {"dcgm/0": "16\n"}
    jobs.begin("18", 1001, (0,))
    assert "17" not in "".join(shown(jobs).values())


def test_a_part_without_uuid_is_shown_by_its_name(jobs: GpuJobs) -> None:
    jobs.start([Gpu(name="0.7", uuid="")])
    jobs.begin("17", 1001, (0,))
    assert shown(jobs) == {"dcgm/0.7": "17\n", "gpustat/0.7": "17 1001\n"}


@pytest.mark.parametrize("numbers", [(), (2,)])
def test_a_job_without_gpus_of_ours_is_shown_nowhere(jobs: GpuJobs, numbers: tuple[int, ...]) -> None:
    jobs.begin("17", 1001, numbers)
    assert shown(jobs) == {}
    jobs.end("17")


def test_a_node_without_gpus_shows_nothing(tmp_path: Path) -> None:
    made = GpuJobs(shown=tmp_path / "shown", own=tmp_path / "own")
    made.start([])
    made.begin("17", 1001, (0,))
    assert not made.shown.exists()


def test_what_is_in_a_file_s_place_goes_or_hides_no_other(jobs: GpuJobs) -> None:
    (jobs.shown / "dcgm/4").mkdir(parents=True)  # as a mount of a file that was not there makes it
    jobs.begin("17", 1001, (0,))
    assert (jobs.shown / "dcgm/4").read_text() == "17\n"
    jobs.end("17")
    (jobs.shown / "dcgm/4/of-somebody").mkdir(parents=True)
    with pytest.raises(OSError, match="dcgm/4"):
        jobs.begin("18", 1001, (0, 1))
    assert shown(jobs)["gpustat/5"] == "18 1001\n"


def test_a_name_that_is_no_number_leads_nowhere(jobs: GpuJobs) -> None:
    with pytest.raises(ValueError, match="no job's number"):
        jobs.begin("../17", 1001, (0,))


def test_one_that_holds_the_lock_keeps_nobody_for_long(jobs: GpuJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("images.common.gpu_jobs._LOCK_SECONDS", 0.1)
    with jobs._alone(), pytest.raises(BlockingIOError):
        jobs.begin("17", 1001, (0,))


def test_what_the_lock_has_kept_from_being_shown_the_next_shows(jobs: GpuJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("images.common.gpu_jobs._LOCK_SECONDS", 0.1)
    jobs.begin("17", 1001, (0, 1))
    with jobs._alone(), pytest.raises(BlockingIOError):
        jobs.end("17")
    with jobs._alone(), pytest.raises(BlockingIOError):
        jobs.begin("18", 1001, (1,))
    jobs.begin("19", 1002, (0,))
    assert shown(jobs) == {
        "dcgm/4": "19\n", "dcgm/5": "18\n", "gpustat/4": "19 1002\n", "gpustat/5": "18 1001\n",
        "gpustat/GPU-d4": "19 1002\n", "gpustat/GPU-d5": "18 1001\n",
    }  # fmt: skip
