"""gpu-free: a job gets GPUs that nobody uses, and nobody is accused without need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result as Command
from images.common.health.contract import Node, Result, Thresholds
from images.health.checks.gpu_free import CHECK
from tests.fakes.commands import FakeRunner
from tests.unit.images.health.places import add_process
from tests.unit.images.health.tables import Like, table, words

FREE = "00000000:3B:00.0, 0, 4\n00000000:AF:00.0, 1, 0\n"
BUSY = "00000000:3B:00.0, 0, 4\n00000000:AF:00.0, 1, 38021\n"
ONE = "00000000:3B:00.0, 0, 4\n"
LOST = "00000000:AF:00.0, 1, [GPU is lost]\n"
APPS = "4711, /usr/bin/python3, 38014\n"
IN_USE = "fail [user]: GPU 1: 38021 MiB in use before a job"
IDLE: dict[str, Any] = {"job": "", "job_gpus": ()}
SHARED: dict[str, Any] = {"other_jobs": True}


def look(root: Path, runner: FakeRunner, *, used_mib: float | None = None, **node: Any) -> Result:
    (root / "proc").mkdir(exist_ok=True)
    limits = {} if used_mib is None else {"used_mib": used_mib}
    there = Node(**{"name": "w-0", "gpus": 2, "root": root, "job": "17", "job_gpus": (0, 1), **node})
    return CHECK.run(there, runner, Thresholds({"gpu-free": limits}))


def smi(memory: str, apps: str = "") -> FakeRunner:
    queries = {"nvidia-smi --query-gpu": memory, "nvidia-smi --query-compute-apps": apps}
    return FakeRunner({query: Command(code=0, stdout=text) for query, text in queries.items()})


def add_gpus(root: Path, *minors: int) -> None:
    for place, minor in zip(("3b", "af"), minors, strict=False):
        directory = root / f"proc/driver/nvidia/gpus/0000:{place}:00.0"
        directory.mkdir(parents=True)
        (directory / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")


@table(
    "runner, node, minors, expected",
    {
        "free GPUs": (smi(FREE), {}, (), "ok"),
        "memory in use, and by whom": (smi(BUSY, APPS), {}, (), f"{IN_USE}, by 4711, /usr/bin/python3, 38014 MiB"),
        "nobody sees by whom": (smi(BUSY, "No running processes found\n"), {}, (), IN_USE),
        "a site allows more": (smi(BUSY), {"used_mib": 40000}, (), "ok"),
        "another job's GPU is not this job's fault": (smi(BUSY), {**SHARED, "job_gpus": (0,)}, (0, 1), "ok"),
        "this job's GPU beside another job": (smi(BUSY), {**SHARED, "job_gpus": (1,)}, (0, 1), "fail ..."),
        "Slurm's numbers go another way": (smi(BUSY), {**SHARED, "job_gpus": (1,)}, (1, 0), "not checked: ..."),
        "Slurm's numbers cannot be told": (smi(BUSY), {**SHARED, "job_gpus": (1,)}, (), "not checked: ..."),
        "a driver away": (FakeRunner({"": Command(code=9, stdout="has failed")}), {}, (), "not checked: has failed"),
        "one is lost": (smi(ONE + LOST), {}, (), f"fail [hardware]: 1 of 2 GPUs are there: {LOST.strip()}"),
        "fewer than promised": (smi(ONE), {}, (), "fail [hardware]: 1 of 2 GPUs are there"),
        "memory in use on a GPU that others use, too": (
            smi(BUSY),
            {"shares_gpus": True},
            (),
            "not checked: others ...",
        ),
        "a figure that is none": (smi("00000000:3B:00.0, 0, [N/A]\n"), {}, (), "not checked: nvidia-smi said ..."),
        "a line too many": (smi(BUSY + "\x00\xff garbage\n"), {}, (), "not checked: nvidia-smi said ..."),
    },
)
def test_a_job_gets_gpus_that_nobody_uses(
    tmp_path: Path, runner: FakeRunner, node: dict[str, Any], minors: tuple[int, ...], expected: str
) -> None:
    add_gpus(tmp_path, *minors)
    assert words(look(tmp_path, runner, **node)) == Like(expected)


@pytest.mark.parametrize(
    ("node", "expected"),
    [({"job_gpus": ()}, "ok"), ({**IDLE, **SHARED}, "not checked: jobs run here")],
    ids=["a job without GPUs", "no job of this one's, and others"],
)
def test_nobody_is_kept_waiting_for_nothing(tmp_path: Path, node: dict[str, Any], expected: str) -> None:
    runner = smi(BUSY)
    assert words(look(tmp_path, runner, **node)) == expected
    assert runner.commands == []


def test_a_job_that_has_just_started_is_seen(tmp_path: Path) -> None:
    add_gpus(tmp_path, 0, 1)
    add_process(tmp_path / "proc", 11, comm="slurmstepd", title="slurmstepd: [18.0]", uid=0)
    assert words(look(tmp_path, smi(BUSY), job_gpus=(0,))) == "ok"
