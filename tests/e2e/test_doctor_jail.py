"""Volumes that cannot be made a jail: `slurmstack doctor` says why, whether `slurmstack up` waits or has failed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.asking_doctor import doctor
from tests.e2e.conftest import ENGINES
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.e2e.small_volumes import Disk, small_volumes
from tests.stacks import ROOT, dev, with_change

pytestmark = pytest.mark.watch

NAMESPACE = "e2e-doctor-jail"


@contextmanager
def applying(slurm: SlurmOnKubernetes) -> Iterator[None]:
    """`slurmstack up`, which is told to end at the end."""
    command = [sys.executable, "-m", "cli.entry", "up", "--yes", "--engine", slurm.engine, "--config", str(slurm.file)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=60)


@pytest.fixture
def disk(tmp_path: Path, local_kubernetes: None) -> Iterator[Disk]:
    """The jail's, too small for it."""
    with small_volumes(NAMESPACE, {"jail": "64M"}, tmp_path) as disks:
        yield disks["jail"]


@pytest.fixture
def slurm(disk: Disk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A stack without accounting, workers and login nodes, which is not there yet."""
    sections = with_change(dev(), "worker_nodes.default.size", 0) | {
        "cluster": {"namespace": NAMESPACE},
        "login": {"size": 0},
        "accounting": {"enabled": False},
    }
    slurm = SlurmOnKubernetes(engine=ENGINES[0], directory=tmp_path_factory.mktemp("jail"), sections=sections)
    yield slurm
    options = ("--yes", "--kill-jobs", "--delete-data", "--engine", slurm.engine, "--config", str(slurm.file))
    slurmstack("destroy", *options, timeout=300)


def test_a_volume_with_files_of_others_and_one_that_is_too_small_are_told(slurm: SlurmOnKubernetes, disk: Disk) -> None:
    def names_first(cause: str) -> bool:
        found = doctor(slurm)[0]["findings"] if slurm.pods() else []
        return bool(found) and found[0]["cause"].startswith(cause)

    foreign = disk.directory / "somebody's"
    foreign.write_text("file\n")
    with applying(slurm):
        wait_until(lambda: names_first("the jail could not be populated"), "the file is told")
    foreign.unlink()
    with applying(slurm):
        wait_until(lambda: names_first("the jail is half populated"), "the size is told")
