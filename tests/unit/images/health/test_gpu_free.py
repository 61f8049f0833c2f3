"""gpu-free: a job gets GPUs that nobody uses, and nobody is accused without need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from images.common.command import Result as Command
from images.health import around_job
from images.health.checks.gpu_free import CHECK, run
from images.health.contract import Node, Status, Thresholds
from tests.unit.images.fakes import FakeRunner
from tests.unit.images.health.processes import add_process

FREE = "00000000:3B:00.0, 0, 4\n00000000:AF:00.0, 1, 0\n"
BUSY = "00000000:3B:00.0, 0, 4\n00000000:AF:00.0, 1, 38021\n"
APPS = "4711, /usr/bin/python3, 38014\n"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "proc").mkdir()
    return Node(name="w-0", gpus=2, root=tmp_path, job="17", job_gpus=(0, 1))


def smi(memory: str, apps: str = "") -> FakeRunner:
    return FakeRunner(
        {
            "nvidia-smi --query-gpu": Command(code=0, stdout=memory),
            "nvidia-smi --query-compute-apps": Command(code=0, stdout=apps),
        }
    )


def add_gpus(root: Path, *minors: int) -> None:
    for place, minor in zip(("3b", "af"), minors, strict=True):
        directory = root / f"proc/driver/nvidia/gpus/0000:{place}:00.0"
        directory.mkdir(parents=True)
        (directory / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")


def test_free_gpus_are_well_and_their_memory_is_told(node: Node) -> None:
    result = run(node, smi(FREE), Thresholds())

    assert result.status is Status.OK
    assert result.values['gpu_memory_used_before_job_bytes{gpu="0"}'] == 4 * 2**20


def test_memory_in_use_fails_and_names_what_can_be_seen(node: Node) -> None:
    result = run(node, smi(BUSY, APPS), Thresholds())

    assert (result.status, result.fault) == (Status.FAIL, "user")
    assert result.message == "GPU 1: 38021 MiB in use before a job, by 4711, /usr/bin/python3, 38014 MiB"
    hidden = run(node, smi(BUSY, "No running processes found\n"), Thresholds())
    assert hidden.message == "GPU 1: 38021 MiB in use before a job"


def test_prologs_have_time_for_it() -> None:
    assert CHECK.seconds < around_job.SECONDS


def test_the_site_sets_how_much_is_much(node: Node) -> None:
    assert run(node, smi(BUSY), Thresholds({"gpu-free": {"used_mib": 40000}})).status is Status.OK
    assert run(node, smi(FREE), Thresholds({"gpu-free": {"used_mib": 3}})).status is Status.FAIL


def test_a_job_without_gpus_is_not_kept_waiting(node: Node) -> None:
    runner = smi(BUSY)

    assert run(replace(node, job_gpus=()), runner, Thresholds()).status is Status.OK
    assert runner.commands == []


@pytest.mark.parametrize(
    "answer",
    [
        Command(code=127, stderr="nvidia-smi: no such program"),
        Command(code=124, stderr="nvidia-smi: no answer within 1.3 s"),
        Command(code=9, stdout="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
        Command(code=0),
        Command(code=0, stdout="No devices were found\n"),
        Command(code=0, stdout="00000000:3B:00.0, 0, [N/A]\n"),
        Command(code=0, stdout="00000000:3B:00.0, 0, 99999\n\x00\xff garbage\n"),
    ],
)
def test_an_absent_hanging_or_babbling_tool_is_not_checked(node: Node, answer: Command) -> None:
    result = run(node, FakeRunner({"nvidia-smi": answer}), Thresholds())

    assert result.status is Status.NOT_CHECKED
    assert result.message


def test_another_jobs_gpu_is_not_this_jobs_fault(node: Node, tmp_path: Path) -> None:
    add_gpus(tmp_path, 0, 1)
    mine, theirs = replace(node, other_jobs=True, job_gpus=(0,)), replace(node, other_jobs=True, job_gpus=(1,))

    assert run(mine, smi(BUSY), Thresholds()).status is Status.OK
    assert run(theirs, smi(BUSY), Thresholds()).status is Status.FAIL


def test_a_job_that_has_just_started_is_seen(node: Node, tmp_path: Path) -> None:
    add_gpus(tmp_path, 0, 1)
    add_process(tmp_path / "proc", 11, comm="slurmstepd", title="slurmstepd: [18.0]")

    assert run(replace(node, job_gpus=(0,)), smi(BUSY), Thresholds()).status is Status.OK


@pytest.mark.parametrize("minors", [(1, 0), ()])
def test_where_slurms_numbers_may_mean_other_gpus_nobody_is_accused(
    node: Node, tmp_path: Path, minors: tuple[int, ...]
) -> None:
    if minors:
        add_gpus(tmp_path, *minors)

    result = run(replace(node, other_jobs=True, job_gpus=(1,)), smi(BUSY), Thresholds())

    assert result.status is Status.NOT_CHECKED


def test_without_a_job_all_gpus_count_and_while_jobs_run_none(node: Node) -> None:
    idle, unused = replace(node, job="", job_gpus=()), smi(BUSY)

    assert run(idle, smi(BUSY), Thresholds()).status is Status.FAIL
    assert run(replace(idle, other_jobs=True), unused, Thresholds()).status is Status.NOT_CHECKED
    assert unused.commands == []
